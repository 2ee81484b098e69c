"""Draws how much faster low-rank models are than the dense one, and prints the measured tables.

    python -m studies.on_device.analyse          measures, and writes results/on_device.csv
    python -m studies.on_device.on_device_figure [results] [--figure on_device.png]

Latencies are those of one machine, so they are read from a file and not measured again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from otafl.plots.layout import get_style
from studies.common.tables import command, find_file, parse_study_arguments
from studies.on_device.latencies import NAME, Latency, print_tables, read_rows, split_by_runtime

RANK = "R = "
"""Beginning of the name of a low-rank model."""


def draw(rows: list[Latency], path: Path) -> None:
    """Draw one panel per width and one curve per runtime."""
    widths = list(dict.fromkeys(row.width for row in rows))
    figure, axes = plt.subplots(1, len(widths), figsize=(8.5, 3.6), sharey=True, squeeze=False)
    for axis, width in zip(axes[0], widths, strict=True):
        panels = [(runtime, here) for of, runtime, here in split_by_runtime(rows) if of == width]
        for i, (runtime, here) in enumerate(panels):
            low_rank = [row for row in here if row.model.startswith(RANK)]
            rank = [int(row.model.removeprefix(RANK)) for row in low_rank]
            spans = [(row.ratio, row.least_ratio, row.most_ratio) for row in low_rank]
            median, low, high = np.array(spans).T
            spread = [median - low, high - median]
            axis.errorbar(rank, median, yerr=spread, label=runtime, capsize=3, **get_style(i))
        axis.axhline(1.0, color="0.6", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=f"Hidden layers {width}", xlabel="Rank")
        axis.set_xticks(rank, [f"{r}" for r in rank])
        axis.minorticks_off()
    axes[0, 0].set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes[0, 0].set_ylabel("Latency of dense / low-rank model")
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    args = parse_study_arguments(__doc__, "on_device.png")
    rows = read_rows(find_file(args.results, NAME))
    print_tables(rows)
    draw(rows, args.figure)


if __name__ == "__main__":
    command(main)
