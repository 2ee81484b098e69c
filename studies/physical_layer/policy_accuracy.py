"""Accuracy by power policy and SNR, each at its best step size on validation data, beside the
error-free uplink in the same trials, and what a step of the server in the place of the devices'
makes of the policies of least error.

    for f in studies/physical_layer/policies*.yaml; do otafl sweep $f; done
    python -m studies.physical_layer.policy_accuracy [results] [--figure policy_accuracy.png]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import xarray as xr
from matplotlib import pyplot as plt

import otafl
from otafl.analysis.summary import format_mean_std
from studies.common.looks import TYPE, compute_half_interval, get_policy_style
from studies.common.tables import (
    classify_budgets,
    command,
    compute_gain,
    find_ends,
    open_grids,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

BUDGETS = ("none", "peak", "average")
TITLES = {"iid": "IID", "label_skew(classes_per_device=2)": "two classes a device"}


def main() -> None:
    args = parse_study_arguments(__doc__, "policy_accuracy.png")
    result = open_result(args.results, "policies")
    best = otafl.select_tuned(result, over="learning_rate")
    (joint,) = {best["power"].dims[0]}
    names = ["ideal", *map(str, best["power"].values[1:])]
    kept = classify_budgets(result) | {"ideal": "none"}
    accuracy = read_end(best, "test_accuracy")
    order = sorted(range(len(names)), key=lambda i: BUDGETS.index(kept[names[i]]))
    names = [names[i] for i in order]
    accuracy = accuracy.isel({joint: order}).transpose("partition", joint, "snr_db", "trial")
    snrs = [f"{snr:g} dB" for snr in accuracy.snr_db.values]
    for each in accuracy:
        title = str(each.partition.values)
        apart = 100 * compute_gain(each[1:], each[0])
        print_head(
            f"{TITLES[title]}: minus ideal, points (95 % interval of {best.sizes['trial']} trials)",
            *("power (budget)", *snrs),
        )
        print_row("ideal: accuracy", *map(format_mean_std, each.values[0]))
        for name, gain in zip(names[1:], apart, strict=True):
            cells = (f"{mean:.1f} [{low:.1f}, {high:.1f}]" for mean, low, high in gain)
            print_row(f"{name} ({kept[name]})", *cells)
    rates = Counter(f"{rate:g}" for rate in best["learning_rate"].values.flat)
    ideal = accuracy.isel({joint: names.index("ideal")})
    print_by_server(args.results, ideal, args.figure)
    print(f"\nstep sizes chosen, and how often: {dict(sorted(rates.items()))}")


def draw(accuracy: xr.DataArray, ideal: xr.DataArray, path: Path) -> None:
    """Draw accuracy over SNR with the server's step tuned, and 95 % intervals over the trials."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 5), layout="constrained", sharey=True)
    snrs = accuracy["snr_db"].values
    for axis, each, base in zip(axes, accuracy, ideal, strict=True):
        curves = {"ideal": base} | {str(one["power"].values): one for one in each}
        for turn, (name, one) in enumerate(curves.items()):
            style = get_policy_style("genie" if name == "ideal" else name)
            at = snrs + 0.5 * (turn - 2.5)
            axis.errorbar(
                at, one.mean("trial"), compute_half_interval(one), label=name, capsize=2, **style
            )
        axis.set(
            title=TITLES[str(each["partition"].values)], xlabel="SNR (dB)", ylim=(0, 1), xticks=snrs
        )
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy, 95 % interval")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=100)
    print(f"\nfigure: {path}")


def print_by_server(results: Path, ideal: xr.DataArray, figure: Path) -> None:
    """Points below the ideal with the step of the server that is best on validation data."""
    over = "server_learning_rate"
    try:
        every = open_grids(results, ("policies_server", "policies_server_ends"), over, join="outer")
    except otafl.UserError as error:  # it has not been run
        print(f"the server's steps: left out: {error}", file=sys.stderr)
        return
    best = otafl.select_tuned(every, over=over).transpose("partition", "power", "snr_db", ...)
    best = best.assign_coords(is_end=sum(best[over] == end for end in find_ends(every, over)) > 0)
    accuracy = read_end(best, "test_accuracy")
    for each, base in zip(accuracy, ideal, strict=True):
        title = TITLES[str(each["partition"].values)]
        levels = (f"{snr:g} dB" for snr in best["snr_db"].values)
        print_head(
            f"{title}, the server's step tuned: minus ideal, points (step)", "power", *levels
        )
        for one in each:
            cells = [
                f"{mean:.1f} [{low:.1f}, {high:.1f}] ({step:g}{'*' * int(is_end)})"
                for (mean, low, high), step, is_end in zip(
                    100 * compute_gain(one, base),
                    one[over].values,
                    one["is_end"].values,
                    strict=True,
                )
            ]
            print_row(one["power"].values, *cells)

    draw(accuracy, ideal, figure)


if __name__ == "__main__":
    command(main)
