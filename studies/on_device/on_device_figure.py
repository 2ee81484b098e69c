"""Draws how much faster low-rank models are than the dense one, from the tables of a page.

    python -m studies.on_device.analyse > measured.md
    python -m studies.on_device.on_device_figure [measured.md or studies/on_device/README.md]

Latencies are those of one machine, so they are read from the page and not measured again.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from otafl.core.errors import UserError
from otafl.plots.style import get_style
from studies.common.tables import command

PAGE = Path("studies/on_device/README.md")
FIGURE = Path("studies/on_device/on_device.png")
ROW = re.compile(r"\| R = (\d+) \|.*\| ([\d.]+) \(([\d.]+) to ([\d.]+)\) \|$")

Speedups = dict[tuple[str, str], list[tuple[float, ...]]]
"""(Width, runtime) -> rank, median, least and largest quotient of latencies."""


def read_speedups(path: Path) -> Speedups:
    """Read the quotients dense / model of each width and runtime."""
    found: Speedups = {}
    width = runtime = ""
    for line in path.read_text().splitlines():
        if title := re.match(r"#+ Hidden layers (.+)", line):
            width = title[1]
        elif re.fullmatch(r"(?:#+ )?(PyTorch|onnxruntime|LiteRT)", line):
            runtime = line.lstrip("# ")
        elif width and runtime and (row := ROW.match(line)):
            numbers = tuple(float(text) for text in row.groups())
            found.setdefault((width, runtime), []).append(numbers)
    if not found:
        raise UserError(
            f"{path}: has no table of latencies; give what studies/on_device/analyse.py prints"
        )
    return found


def draw(found: Speedups) -> None:
    """Draw one panel per width and one curve per runtime."""
    widths = list(dict.fromkeys(width for width, _ in found))
    figure, axes = plt.subplots(1, len(widths), figsize=(8.5, 3.6), sharey=True, squeeze=False)
    for axis, width in zip(axes[0], widths, strict=True):
        curves = [(runtime, rows) for (of, runtime), rows in found.items() if of == width]
        for i, (runtime, rows) in enumerate(curves):
            rank, median, low, high = np.array(rows).T
            spread = [median - low, high - median]
            axis.errorbar(rank, median, yerr=spread, label=runtime, capsize=3, **get_style(i))
        axis.axhline(1.0, color="0.6", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=f"Hidden layers {width}", xlabel="Rank")
        axis.set_xticks(rank, [f"{r:.0f}" for r in rank])
        axis.minorticks_off()
    axes[0, 0].set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes[0, 0].set_ylabel("Latency of dense / low-rank model")
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", default=PAGE)
    draw(read_speedups(parser.parse_args().page))


if __name__ == "__main__":
    command(main)
