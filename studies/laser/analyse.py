"""Test accuracy by energy of ways to send gradients over a noisy sum, as in LASER's MNIST figure,
each at its best step size on validation data.

    otafl sweep studies/laser/laser_figure.yaml
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
from studies.common.tables import command, open_result, parse_study_arguments, print_head, print_row

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
LOOKS = {
    "LASER": ("#009E73", "o"),
    "Z-SGD": ("#0072B2", "x"),
    "count sketch": ("#E69F00", "^"),
    "random-k": ("#882255", "s"),
    "A-DSGD, AMP": ("#7F7F7F", "v"),
    "A-DSGD, linear": ("#D55E00", "D"),
}


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


def main() -> None:
    args = parse_study_arguments(__doc__, "laser.png")
    result = count_diverged(open_result(args.results, "laser_figure"))
    points = place_points(result)
    ends: dict[str, list[np.ndarray]] = {}
    steps: dict[str, list[str]] = {}
    for method in LOOKS:
        for power in POWERS:
            here = result.isel(zip=points[method, power])
            trials, factor, inside = choose_step(here)
            scale = float(here["server_learning_rate"])
            ends.setdefault(method, []).append(select_at_end(trials, "test_accuracy").values)
            mark = "" if inside else " (end of the grid)"
            steps.setdefault(method, []).append(f"{scale * factor:.2g}{mark}")
    heads = [f"P = {power:g}" for power in POWERS]
    print_head(f"Mean ± deviation of {result.sizes['trial']} trials", "method", *heads)
    for method, accuracy in ends.items():
        print_row(method, *map(format_mean_std, accuracy))
    print_head("Step sizes with the best validation accuracy", "method", *heads)
    for method, chosen in steps.items():
        print_row(method, *chosen)
    print_head("The paper's accuracy on MNIST, read off its figure", "method", *heads)
    for method, values in PAPER.items():
        print_row(method, *values)
    draw(ends, args.figure)
    print(f"\nfigure: {args.figure}")


def draw(ends: dict[str, list[np.ndarray]], path: Path) -> None:
    """Draw our accuracies beside the paper's."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
    for method, accuracy in ends.items():
        colour, marker = LOOKS[method]
        mean = [float(np.mean(one)) for one in accuracy]
        off = [[m - float(np.min(one)) for m, one in zip(mean, accuracy, strict=True)]]
        off += [[float(np.max(one)) - m for m, one in zip(mean, accuracy, strict=True)]]
        style = {"color": colour, "marker": marker, "label": method}
        axes[0].errorbar(POWERS, mean, yerr=off, capsize=3, **style)
        if method in PAPER:
            axes[1].plot(POWERS, PAPER[method], **style)
    titles = ("otafl, Fashion-MNIST, 150 rounds", "paper, MNIST, 1,500 rounds")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="energy of a round, P", xscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (bars: range of two trials)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    command(main)
