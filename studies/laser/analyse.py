"""Test accuracy by energy of ways to send gradients over a noisy sum, as in LASER's MNIST figure,
each at its best step size on validation data.

    for f in studies/laser/*.yaml; do otafl sweep $f; done
    python -m studies.laser.analyse [results] [--figure laser.png]
"""

from __future__ import annotations

import math
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

STEP = "algorithm_learning_rate"
POWERS = (0.01, 0.1, 1.0, 10.0, 100.0)
SYMBOLS = {"identity": 7850, "laser": 1598}
"""Real numbers of a round, on average; 785 for the other codecs."""
PAPER = {
    "LASER": (0.71, 0.84, 0.89, 0.92, 0.92),
    "Z-SGD": (0.69, 0.81, 0.88, 0.92, 0.92),
    "count sketch": (0.71, 0.82, 0.88, 0.92, 0.92),
    "random-k": (0.78, 0.86, 0.89, 0.915, 0.92),
    "A-DSGD, linear": (0.55, 0.82, 0.87, 0.87, 0.875),
}
"""Read off the paper's figure on MNIST."""
METHODS = (*PAPER, "A-DSGD, AMP")
"""Methods, in the order of the tables."""
ENDS, BASE = (POWERS[0], POWERS[-1]), "Z-SGD"
"""Energies that ran for the paper's number of rounds, and the method without compression."""


def name_method(codec: str) -> str:
    """The name of a method in the figure, from the label of its codec."""
    name = codec.partition("(")[0]
    if name == "compressed_sensing":
        return f"A-DSGD, {'linear' if 'estimate=linear' in codec else 'AMP'}"
    names = {"laser": "LASER", "identity": "Z-SGD", "shared_subset": "random-k"}
    return names.get(name, "count sketch")


def place_points(result: xr.Dataset) -> dict[tuple[str, float], int]:
    """Method and energy of a round -> position in the sweep's joint axis."""
    found = {}
    for place, (codec, snr) in enumerate(
        zip(result["codec"].values, result["snr_db"].values, strict=True)
    ):
        energy = 2.0 * SYMBOLS.get(str(codec), 785) * 10.0 ** (snr / 10.0)
        nearest = min(POWERS, key=lambda one: abs(math.log(one / energy)))
        found[name_method(str(codec)), nearest] = place
    return found


def choose_step(trials: xr.Dataset) -> tuple[xr.Dataset, float, bool]:
    """The runs with the best mean validation accuracy, their factor, and whether it is inside."""
    steps = trials[STEP].values
    mean = select_at_end(trials, "validation_accuracy").mean("trial").values
    best = int(np.nanargmax(mean))
    inside = 0 < best < len(steps) - 1
    return trials.isel({STEP: best}), float(steps[best]), inside


def read_ends(
    result: xr.Dataset,
) -> tuple[dict[tuple[str, float], xr.DataArray], dict[tuple[str, float], str]]:
    """Read the test accuracy [trial] of each method and energy at its best step, and the step."""
    ends, steps = {}, {}
    for (method, power), place in place_points(result).items():
        here = result.isel(zip=place)
        trials, factor, inside = choose_step(here)
        scale = float(here["server_learning_rate"])
        accuracy = select_at_end(trials, "test_accuracy")
        ends[method, power] = accuracy.drop_vars(set(accuracy.coords) - {"trial"})
        steps[method, power] = f"{scale * factor:.2g}{'' if inside else ' (end of the grid)'}"
    return ends, steps


def main() -> None:
    args = parse_study_arguments(__doc__, "laser.png")
    short, long = (
        count_diverged(open_result(args.results, name)) for name in ("laser_figure", "laser_long")
    )
    ends, steps = read_ends(short)
    heads = [f"P = {power:g}" for power in POWERS]
    print_head(
        f"150 rounds: mean ± deviation of {short.sizes['trial']} trials; step size",
        *("method", *heads),
    )
    for method in METHODS:
        keys = [(method, power) for power in POWERS]
        print_row(method, *(f"{format_mean_std(ends[key].values)}; {steps[key]}" for key in keys))
    long_ends, long_steps = read_ends(long)
    print_head(
        f"1,500 rounds: mean ± deviation of {long.sizes['trial']} trials",
        *("method", *(f"P = {power:g}" for power in ENDS)),
        *(f"points above {BASE}, P = {power:g}" for power in ENDS),
        *(f"step size, P = {power:g}" for power in ENDS),
    )
    for method in PAPER:
        own = [long_ends[method, power] for power in ENDS]
        base = [long_ends[BASE, power] for power in ENDS]
        gains = [""] * 2 if method == BASE else map(format_points, own, base)
        chosen = (long_steps[method, power] for power in ENDS)
        print_row(method, *(format_mean_std(one.values) for one in own), *gains, *chosen)
    print_head("The paper's accuracy on MNIST, read off its figure", "method", *heads)
    for method, values in PAPER.items():
        print_row(method, *values)
    draw(ends, long_ends, args.figure)
    print(f"\nfigure: {args.figure}")


def draw(
    short: dict[tuple[str, float], xr.DataArray],
    long: dict[tuple[str, float], xr.DataArray],
    path: Path,
) -> None:
    """Draw accuracies by method after both numbers of rounds, at the least and the most energy."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharey=True)
    looks = (("150 rounds", short, "#E69F00", "s"), ("1,500 rounds", long, "#0072B2", "o"))
    for axis, power in zip(axes, ENDS, strict=True):
        for shift, (label, ends, colour, marker) in zip((-0.15, 0.15), looks, strict=True):
            found = [ends[method, power].values for method in PAPER]
            mean = np.array([one.mean() for one in found])
            low, high = (mean - [one.min() for one in found], [o.max() for o in found] - mean)
            style = {"fmt": marker, "color": colour, "capsize": 3, "label": label}
            axis.errorbar(np.arange(len(PAPER)) + shift, mean, yerr=[low, high], **style)
        axis.set_xticks(
            range(len(PAPER)), list(PAPER), rotation=20, ha="right", rotation_mode="anchor"
        )
        axis.set(title=f"P = {power:g}", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (bars: range of trials)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    command(main)
