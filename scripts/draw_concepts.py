"""The pictures of docs/concepts.md. Three show what runs of some seconds give: the gains of power
policies, a timeline, the pairing of trials; the others are drawings.

    python scripts/draw_concepts.py [--folder docs/pictures]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import otafl

BLUE, ORANGE, GREEN, GREY, PALE = "#0072B2", "#D55E00", "#009E73", "#555555", "#EAF2F8"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("docs/pictures"))
    draw_all(parser.parse_args().folder)


def draw_all(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    style = {"svg.hashsalt": "otafl", "font.size": 9, "svg.fonttype": "path"}
    with plt.rc_context(style):
        for name, draw in PICTURES.items():
            figure = draw()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, facecolor="white")
            plt.close(figure)


def make_canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty drawing, one unit an inch."""
    figure = plt.figure(figsize=(width, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def draw_box(
    ax: Axes, x: float, y: float, width: float, text: str, colour: str = BLUE, height: float = 0.5
) -> None:
    """A rounded box with its centre at (x, y)."""
    corner = (x - width / 2, y - height / 2)
    shape = FancyBboxPatch(
        corner, width, height, boxstyle="round,pad=0,rounding_size=0.08", fc="white", ec=colour
    )
    ax.add_patch(shape)
    ax.text(x, y, text, ha="center", va="center", color=colour)


def draw_arrow(ax: Axes, start: Sequence[float], end: Sequence[float], colour: str = GREY) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=style)


def draw_round() -> Figure:
    """The steps of a round, in the engine's order, on the side on which each happens."""
    figure, ax = make_canvas(8.2, 2.75)
    sides = {"server": 2.3, "devices": 1.35, "air and clock": 0.4}
    for name, y in sides.items():
        ax.axhspan(y - 0.42, y + 0.42, color=PALE, lw=0)
        ax.text(0.08, y + 0.28, name, color=GREY, va="center", fontsize=8)
    steps = (
        ("channel", "air and clock"),
        ("plan", "air and clock"),
        ("select", "server"),
        ("local work", "devices"),
        ("encode", "devices"),
        ("admit", "air and clock"),
        ("transport", "air and clock"),
        ("combine", "server"),
        ("measure", "server"),
    )
    width = 0.78
    places = [(0.5 + 0.9 * i, sides[side]) for i, (_, side) in enumerate(steps)]
    for (name, _), (x, y) in zip(steps, places, strict=True):
        draw_box(ax, x, y - 0.06, width, name, height=0.42)
    for (x, y), (u, v) in itertools.pairwise(places):
        level = y == v
        start = (x + width / 2, y - 0.06) if level else (x, y - 0.06 + np.sign(v - y) * 0.21)
        end = (u - width / 2, v - 0.06)
        if level:
            draw_arrow(ax, start, end)
        else:
            ax.plot([start[0], start[0]], [start[1], end[1]], color=GREY, lw=1)
            draw_arrow(ax, (start[0], end[1]), end)
    return figure


def draw_channel() -> Figure:
    """Devices transmit at once, one receiver hears the sum."""
    figure, ax = make_canvas(8.2, 3.1)
    rows = {"1": 2.6, "2": 1.75, "K": 0.55}
    for k, y in rows.items():
        draw_box(ax, 0.75, y, 1.1, f"device {k}: $x_{{{k}}}$")
        draw_box(ax, 2.35, y, 0.8, f"$\\times\\ p_{{{k}}}$", GREEN)
        draw_box(ax, 3.75, y, 0.8, f"$\\times\\ h_{{{k}}}$", ORANGE)
        draw_arrow(ax, (1.3, y), (1.95, y))
        draw_arrow(ax, (2.75, y), (3.35, y))
        draw_arrow(ax, (4.15, y), (5.0, 1.6 + 0.12 * np.sign(y - 1.6)))
    ax.text(0.75, 1.15, "...", ha="center", va="center")
    ax.add_patch(plt.Circle((5.17, 1.6), 0.19, fc="white", ec=ORANGE))
    ax.text(5.17, 1.59, "+", ha="center", va="center", color=ORANGE, fontsize=13)
    ax.text(5.17, 2.32, "noise $n$", ha="center", va="bottom", color=ORANGE)
    draw_arrow(ax, (5.17, 2.28), (5.17, 1.8), ORANGE)
    draw_arrow(ax, (5.36, 1.6), (5.75, 1.6))
    draw_box(ax, 6.4, 1.6, 1.3, r"Re$(y)\ /\ \sqrt{\eta}$", BLUE)
    draw_arrow(ax, (7.05, 1.6), (7.35, 1.6))
    ax.text(7.42, 1.6, "estimate\nof $\\sum_k x_k$", va="center", fontsize=8)
    for x, text, colour in (
        (2.35, "power policy", GREEN),
        (3.75, "fading", ORANGE),
        (6.4, "one receiver", BLUE),
    ):
        ax.text(x, 2.93 if x < 6 else 2.0, text, ha="center", va="bottom", color=colour, fontsize=8)
    return figure


def draw_gains() -> Figure:
    """Effective gains c_k of the same eight fading devices under four policies, at 10 dB."""
    updates = np.random.default_rng(0).standard_normal((8, 2000))
    truncated = {"name": "tci", "constraint": "peak"}
    policies = {"ci": "ci", "cao_static": "cao_static", "tci, peak": truncated, "gbma": "gbma"}
    figure, axes = plt.subplots(1, 4, figsize=(8.2, 2.5), sharey=True, layout="constrained")
    for ax, (name, power) in zip(axes, policies.items(), strict=True):
        _, report = otafl.over_the_air(updates, power=power, snr_db=10, seed=3)
        order = np.argsort(np.abs(report.h))
        ax.bar(range(1, 9), report.c[order], color=BLUE, width=0.7)
        ax.axhline(1, color=GREY, lw=1, ls="--")
        noise = np.sqrt(0.5 / float(report.eta))
        ax.set_title(f"{name}\nnoise {noise:.2f}, error {report.nmse:.2f}", fontsize=9)
        ax.set(xlabel="device, weakest first", xticks=range(1, 9))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("gain $c_k$")
    return figure


def draw_clock() -> Figure:
    """The first three rounds of a run of six devices of unlike speed under a deadline."""
    deadline, colours = 0.05, {"receive": "#8CCBEE", "compute": BLUE, "wait": "#CCCCCC"}
    colours |= {"transmit": ORANGE, "lost": "#E69F00"}
    scenario = {
        "name": "clock",
        "model": {"name": "mlp", "hidden": [32]},
        "channel": {"name": "rayleigh", "snr_db": 20, "bandwidth_hz": 2e5},
        "devices": {
            "count": 6,
            "deadline_s": deadline,
            "compute": {
                "name": "lognormal",
                "median_flops_per_s": 5e7,
                "sigma": 0.6,
                "jitter": "exponential",
            },
        },
        "training": {"rounds": 3, "local_steps": 5, "eval_every": 3},
        "output": {"save_timeline": True},
        "seed": 5,
    }
    events = otafl.extract_timeline(otafl.run(scenario))
    figure, ax = plt.subplots(figsize=(8.2, 2.7), layout="constrained")
    for name, colour in colours.items():
        those = events.activity.values == name
        start, end = events.start_s.values[those], events.end_s.values[those]
        rows = events.device.values[those]
        hatch = "xxx" if name == "lost" else None
        ax.barh(rows, (end - start) * 1e3, left=start * 1e3, color=colour, label=name, hatch=hatch)
    slots = events.where(events.activity == "transmit", drop=True)
    for start, end in sorted(set(zip(slots.start_s.values, slots.end_s.values, strict=True))):
        ax.axvspan(start * 1e3, end * 1e3, color="#FBE6D4", zorder=0)
    ax.set(xlabel="simulated time, ms", ylabel="device", yticks=range(6), xlim=(0, None))
    ax.invert_yaxis()
    ax.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def draw_batch_of_trials() -> Figure:
    """Points x trials x devices become the rows of one batched program."""
    figure, ax = make_canvas(8.2, 2.6)
    side, gap, colours = 0.26, 0.34, (BLUE, ORANGE, GREEN)
    for point, colour in enumerate(colours):
        x0 = 0.5 + 1.3 * point
        ax.text(x0 + 0.34, 2.3, f"{(0, 10, 20)[point]} dB", ha="center", color=colour)
        for trial in range(2):
            for device in range(3):
                corner = (x0 + trial * gap, 1.6 - device * gap)
                ax.add_patch(plt.Rectangle(corner, side, side, fc=colour, alpha=1 - 0.45 * trial))
    ax.text(0.42, 1.4, "devices", rotation=90, ha="right", va="center", color=GREY, fontsize=8)
    ax.text(0.84, 0.75, "trials", ha="center", color=GREY, fontsize=8)
    ax.text(
        1.9,
        0.25,
        "points of the sweep x trials = S, times devices = N rows",
        ha="center",
        color=GREY,
    )
    draw_arrow(ax, (4.35, 1.4), (4.95, 1.4))
    rows = [(p, t, d) for p in range(3) for t in range(2) for d in range(3)]
    height = 1.95 / len(rows)
    for row, (point, trial, _) in enumerate(rows):
        corner = (5.1, 2.2 - row * height)
        style = {"fc": colours[point], "alpha": 1 - 0.45 * trial, "ec": "white", "lw": 0.4}
        ax.add_patch(plt.Rectangle(corner, 2.2, height * 0.86, **style))
    ax.text(6.2, 2.36, "one tensor [N, parameters]", ha="center", color=GREY, fontsize=8)
    ax.text(7.42, 1.3, "one batched\nprogram,\nno loop", va="center", color=GREY, fontsize=8)
    return figure


def draw_pairs() -> Figure:
    """Accuracy of two policies, trial by trial: what differs between trials is common to both."""
    scenario = {
        "name": "pairs",
        "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 3}},
        "model": {"name": "mlp", "hidden": [32]},
        "algorithm": {"name": "fedavg", "learning_rate": 0.1},
        "channel": {"name": "rayleigh", "snr_db": -15},
        "training": {"rounds": 60, "local_steps": 5, "eval_every": 60},
        "trials": 12,
        "sweep": {"power": ["gbma", {"name": "tci", "constraint": "peak"}]},
    }
    final = otafl.run(scenario).test_accuracy.isel(round=-1)
    a, b = final.transpose("power", "trial").values
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.2, 2.7), width_ratios=(2, 1), layout="constrained"
    )
    trials = np.arange(len(a))
    left.vlines(trials, a, b, color="#BBBBBB", lw=1)
    left.plot(trials, a, "o", color=BLUE, label="gbma")
    left.plot(trials, b, "s", color=ORANGE, label="tci, peak")
    left.set(xlabel="trial", ylabel="test accuracy", xticks=trials[::2])
    left.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    spreads = (np.hypot(a.std(ddof=1), b.std(ddof=1)), (b - a).std(ddof=1))
    right.barh(("if independent", "paired"), spreads, color=(GREY, GREEN))
    right.set_xlabel("deviation of tci - gbma")
    right.locator_params(axis="x", nbins=4)
    right.invert_yaxis()
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def draw_models() -> Figure:
    """Which model exists when in a round, and what each is called in the results."""
    figure, ax = make_canvas(8.2, 2.7)
    draw_box(ax, 0.95, 2.1, 1.5, "model of the\nserver", BLUE, 0.6)
    draw_box(ax, 3.3, 0.9, 1.7, "local model\nof a device", ORANGE, 0.6)
    draw_box(ax, 5.3, 0.9, 1.5, "personal model\nof a device", GREEN, 0.6)
    draw_box(ax, 7.2, 2.1, 1.6, "next model of\nthe server", BLUE, 0.6)
    draw_arrow(ax, (1.7, 1.95), (2.8, 1.22))
    ax.text(1.3, 1.42, "broadcast,\nlocal work", color=GREY, fontsize=8, ha="center")
    draw_arrow(ax, (3.8, 1.22), (6.38, 1.95))
    ax.text(4.6, 1.87, "increments over the air", color=GREY, fontsize=8, ha="center")
    ax.plot([4.15, 4.55], [0.9, 0.9], color=GREY, lw=1, ls=":")
    ax.text(3.3, 0.36, "local_test_accuracy", ha="center", color=ORANGE, fontsize=8)
    ax.text(5.3, 0.36, "personal_test_accuracy", ha="center", color=GREEN, fontsize=8)
    ax.text(7.2, 1.56, "test_accuracy", ha="center", color=BLUE, fontsize=8)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "round": draw_round,
    "channel": draw_channel,
    "gains": draw_gains,
    "clock": draw_clock,
    "stack": draw_batch_of_trials,
    "pairs": draw_pairs,
    "models": draw_models,
}

if __name__ == "__main__":
    main()
