"""The pictures of docs/topology.md, docs/waveform.md and docs/extending.md.

python scripts/draw_pages.py [--folder docs/pictures]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, RegularPolygon

from otafl.topology import graph
from otafl.topology.hexagons import build_hexagons
from otafl.uplink.coherent.ofdm_samples import rapp, to_samples

BLUE, ORANGE, GREEN, GREY, PALE = "#0072B2", "#D55E00", "#009E73", "#555555", "#EAF2F8"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("docs/pictures"))
    draw_all(parser.parse_args().folder)


def draw_all(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"font.size": 9}):
        for name, draw in PICTURES.items():
            figure = draw()
            figure.savefig(
                folder / f"{name}.png", dpi=110, metadata={"Software": None}, facecolor="white"
            )
            plt.close(figure)


def draw_topologies() -> Figure:
    """Draw seven cells at reuse 1, twenty-one at reuse 3, access points, and two graphs."""
    figure, axes = plt.subplots(1, 5, figsize=(10.5, 2.5), layout="constrained")
    draw_cells(axes[0], 7, 1)
    axes[0].set_title("cells, reuse 1")
    draw_cells(axes[1], 21, 3)
    axes[1].set_title("cells, reuse 3")
    draw_access_points(axes[2])
    axes[2].set_title("cell_free")
    angle = 2 * math.pi * np.arange(12) / 12
    draw_graph(axes[3], np.stack([np.cos(angle), np.sin(angle)], 1), graph.ring_edges(12))
    places = np.random.default_rng(2).uniform(size=(12, 2))
    draw_graph(axes[4], places, graph.geometric_edges(places, 0.5))
    for ax, kind in ((axes[3], "ring"), (axes[4], "geometric")):
        ax.set_title(f"graph, {kind}")
    for ax in axes:
        ax.set_aspect("equal")
        ax.axis("off")
    return figure


def draw_cells(ax: Axes, sites: int, reuse: int) -> None:
    """Draw sites by the part of the band, and the interference that one of them receives."""
    layout = build_hexagons(sites, reuse)
    shown = layout.positions - layout.positions[0]
    turn = layout.shift[0]  # the places of the others as site 0 sees them
    shown = np.where(np.arange(sites)[:, None] == 0, 0.0, turn)
    for place, band in zip(shown, layout.band, strict=True):
        colour = (BLUE, ORANGE, GREEN)[int(band) % 3]
        ax.add_patch(
            RegularPolygon(place, 6, radius=1 / math.sqrt(3), fc=colour, ec="w", alpha=0.3)
        )
        ax.plot(*place, "^", color=colour, ms=4)
    for other in layout.list_co_channel_sites()[0]:
        style = {"arrowstyle": "-|>", "color": GREY, "lw": 0.8, "shrinkA": 3, "shrinkB": 3}
        ax.annotate("", shown[0], shown[other], arrowprops=style)
    ax.autoscale_view()
    ax.margins(0.1)


def draw_access_points(ax: Axes) -> None:
    """Draw devices in a disc, and the links of one of them to four access points."""
    draws = np.random.default_rng(1)
    angle, radius = 2 * math.pi * draws.uniform(size=10), 200 * np.sqrt(draws.uniform(size=10))
    devices = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    points = np.array([[100, 0], [-100, 0], [0, 100], [0, -100]])
    for point in points:
        ax.plot(*np.stack([devices[0], point]).T, color=GREY, lw=0.8, zorder=0)
    ax.add_patch(plt.Circle((0, 0), 200, fc=PALE, zorder=-1))
    ax.plot(*points.T, "^", color=BLUE)
    ax.plot(*devices.T, "o", color=ORANGE, ms=4)


def draw_graph(ax: Axes, places: np.ndarray, edges: np.ndarray) -> None:
    """Draw devices by the slot in which each receives its neighbours."""
    for first, second in zip(*np.nonzero(np.triu(edges)), strict=True):
        ax.plot(*places[[first, second]].T, color=GREY, lw=0.7, zorder=0)
    slot = graph.assign_slots(edges)
    ax.scatter(*places.T, c=slot, cmap="tab10", vmin=0, vmax=9, s=80)
    for place, number in zip(places, slot, strict=True):
        ax.text(*place, str(number + 1), color="w", ha="center", va="center", fontsize=7)
    ax.margins(0.12)


def draw_spectrum() -> Figure:
    """Draw the spectrum behind Rapp's amplifier at three back-offs, 64 sub-carriers."""
    figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
    draws = torch.Generator().manual_seed(0)
    carriers = torch.randn(2000, 64, generator=draws, dtype=torch.complex128)
    samples = to_samples(carriers, 256)
    power = samples.abs().square().mean()
    spacing = np.arange(-128, 128)
    inside = np.abs(spacing + 0.5) < 32
    for backoff, colour in ((0, ORANGE), (4, GREEN), (8, BLUE)):
        level = (power * 10 ** (backoff / 10)).sqrt()
        sent = rapp(samples, level, torch.tensor(2.0))
        density = torch.fft.fft(sent).abs().square().mean(0)
        shape = np.fft.fftshift(density.numpy())
        ax.plot(
            spacing,
            10 * np.log10(shape / shape[inside].mean()),
            color=colour,
            lw=1.2,
            label=f"back-off {backoff} dB",
        )
    ax.axvspan(-32, 32, color=PALE, zorder=0)
    ax.set(xlabel="frequency in sub-carrier spacings", ylabel="power density, dB", ylim=(-60, 12))
    ax.legend(frameon=False, loc="upper center", ncols=3, fontsize=8)
    return figure


def draw_tensors() -> Figure:
    """Draw the tensors that a method and a power policy are given, with named dimensions."""
    figure, axes = plt.subplots(1, 4, figsize=(9.5, 2.3), layout="constrained")
    draw_tensor(axes[0], 1, "S trials", "P parameters", "server: tensors [S, P]", 2, 7)
    draw_tensor(axes[1], 1, "n rows", "P parameters", "local: tensors [n, P]", 5, 7)
    axes[1].text(3.5, -1.9, "a row is one (trial, device) pair", ha="center", color=GREY)
    draw_tensor(axes[2], 3, "S trials", "K devices", "link.h, p: [S, Q, K]", 2, 5, "Q segments")
    draw_tensor(axes[3], 1, "S trials", "Q segments", "eta: [S, Q]", 2, 3)
    for ax in axes:
        ax.set(xlim=(-1.4, 8.2), ylim=(-2.4, 5.8))
        ax.set_aspect("equal")
        ax.axis("off")
    return figure


def draw_tensor(
    ax: Axes, depth: int, down: str, across: str, title: str, high: int, wide: int, back: str = ""
) -> None:
    """Draw a grid of entries, as many times behind itself as it is deep."""
    for layer in reversed(range(depth)):
        shift = 0.45 * layer
        for row in range(high):
            for column in range(wide):
                corner = (column + shift, row + shift)
                ax.add_patch(Rectangle(corner, 1, 1, fc=PALE, ec=BLUE, lw=0.8))
    ax.text(wide / 2, -0.7, across, ha="center", color=GREY)
    ax.text(-0.35, high / 2, down, ha="right", va="center", color=GREY, rotation=90)
    if back:
        ax.text(wide + 0.2, 0.1, back, color=GREY, rotation=45, fontsize=8)
    top = high + 0.45 * (depth - 1) + 0.4
    ax.text(wide / 2, top, title, ha="center", color=BLUE)


PICTURES = {"topologies": draw_topologies, "spectrum": draw_spectrum, "tensors": draw_tensors}

if __name__ == "__main__":
    main()
