"""Test accuracy of ways to send gradients over a noisy sum at the least and the most energy of
LASER's MNIST figure, each at its best step size on validation data.

    for f in studies/laser/*.yaml; do otafl sweep $f; done
    python -m studies.laser.analyse [results] [--figure laser.png]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import count_diverged, select_at_end
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

POWERS = (0.01, 100.0)
PAPER = {
    "LASER": (0.71, 0.92),
    "Z-SGD": (0.69, 0.92),
    "count sketch": (0.71, 0.92),
    "random-k": (0.78, 0.92),
    "A-DSGD, linear": (0.55, 0.875),
}
"""Accuracies by energy, read off the paper's figure on MNIST; in the order of the scenario."""
BASE = "Z-SGD"
"""The method without compression."""


def choose_step(steps: xr.Dataset, place: int) -> str:
    """Write the best step on validation data, with a star at an end of the grid."""
    here = steps.isel(zip=place)
    mean = select_at_end(here, "validation_accuracy").mean("trial").values
    best = int(np.nanargmax(mean))
    tried = here["algorithm_learning_rate"].values
    step = float(here["server_learning_rate"]) * float(tried[best])
    return f"{step:.2g}{'*' * (best in (0, len(tried) - 1))}"


def main() -> None:
    args = parse_study_arguments(__doc__, "laser.png")
    result, steps = (open_result(args.results, name) for name in ("laser", "laser_long"))
    accuracy = select_at_end(count_diverged(result), "test_accuracy").transpose("zip", "trial")
    places = {
        method: range(len(POWERS) * row, len(POWERS) * (row + 1))
        for row, method in enumerate(PAPER)
    }
    print_head(
        f"Accuracy after 1,500 rounds: mean ± deviation of {accuracy.sizes['trial']} trials; step",
        *("method", *(f"P = {power:g}" for power in POWERS)),
        *(f"points above {BASE}, P = {power:g}" for power in POWERS),
        *(f"paper, P = {power:g}" for power in POWERS),
    )
    for method, own in places.items():
        cells = (
            f"{format_mean_std(accuracy[at].values)}; {choose_step(count_diverged(steps), at)}"
            for at in own
        )
        pairs = zip(own, places[BASE], strict=True)
        gains = (
            "" if at == base else format_points(accuracy[at], accuracy[base]) for at, base in pairs
        )
        print_row(method, *cells, *gains, *PAPER[method])
    draw(accuracy.values.reshape(len(PAPER), len(POWERS), -1), args.figure)
    print(f"\nfigure: {args.figure}")


def draw(ends: np.ndarray, path: Path) -> None:
    """Draw the accuracies [method, energy, trial] by method at both energies."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for axis, power, values in zip(axes, POWERS, ends.transpose(1, 0, 2), strict=True):
        mean = values.mean(1)
        spread = (mean - values.min(1), values.max(1) - mean)
        axis.errorbar(range(len(PAPER)), mean, yerr=spread, fmt="o", color="#0072B2", capsize=3)
        axis.set_xticks(range(len(PAPER)), list(PAPER), rotation=20, ha="right")
        axis.set(title=f"P = {power:g}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (bars: range of trials)")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    command(main)
