"""Accuracy, seconds and joules of cells that share a band in full or in parts, with and without a
cloud, each at its best step size on validation data; differences are paired, trial by trial.

    otafl sweep studies/reuse/reuse.yaml
    python -m studies.reuse.analyse [results] [--figure reuse.png]
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import count_diverged, select_at_end, sum_over_devices
from studies.common.looks import TYPE, compute_half_interval, draw_band
from studies.common.tables import (
    command,
    compute_gain,
    interpolate_at_cost,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

TARGET = 0.5
COLOURS = ("#D55E00", "#0072B2", "#CC79A7", "#009E73")
"""By reuse, ascending."""


def compute_spent(best: xr.Dataset, what: xr.DataArray) -> xr.DataArray:
    """What has been spent when the validation accuracy first reaches the target; NaN if never."""
    there = best["validation_accuracy"] >= TARGET
    return what.where(there).min("round")


def format_reached(costs: np.ndarray) -> str:
    found = costs[np.isfinite(costs)]
    if len(found) == len(costs):
        return format_mean_std(found)
    return f"{len(found)} of {len(costs)} trials" if len(found) else "no trial"


def parse_reuse(label: str) -> int:
    return int(re.findall(r"reuse=(\d+)", label)[0])


def format_difference(one: xr.DataArray, other: xr.DataArray) -> str:
    mean, low, high = 100 * compute_gain(one, other)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def format_cost_difference(one: xr.DataArray, other: xr.DataArray) -> str:
    """Write the paired difference of costs; a dash unless all trials reach the target."""
    if not (one.notnull().all() and other.notnull().all()):
        return "-"
    mean, low, high = compute_gain(one, other)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def compare(best: xr.Dataset, radiated: xr.DataArray, reuses: list[int]) -> None:
    """Print the paired differences of successive reuses, by rounds, by time and in joules."""
    print_head(
        "Points of test accuracy, and joules, above the next smaller reuse, paired",
        *("radius", "cloud", "reuses", "at the last round", "when reuse 1 ends"),
        f"joules more to {TARGET:.0%}",
    )
    labels = [str(label) for label in best["topology"].values]
    for radius in best["cell_radius_m"].values:
        for cloud in (False, True):
            chosen = [label for label in labels if label.startswith("hierarchical") == cloud]
            own = {parse_reuse(x): best.sel(cell_radius_m=radius, topology=x) for x in chosen}
            joules = {
                r: radiated.sel(cell_radius_m=radius, topology=x)
                for r, x in zip(own, chosen, strict=True)
            }
            budget = own[reuses[0]]["sim_time_s"].max("round")
            ends = {r: select_at_end(one, "test_accuracy") for r, one in own.items()}
            timed = {
                r: interpolate_at_cost(one, "test_accuracy", one["sim_time_s"], budget)
                for r, one in own.items()
            }
            for less, more in itertools.pairwise(reuses):
                print_row(
                    *(f"{radius:g} m", "yes" if cloud else "no", f"{more} above {less}"),
                    *(format_difference(values[more], values[less]) for values in (ends, timed)),
                    format_cost_difference(joules[more], joules[less]),
                )


def main() -> None:
    args = parse_study_arguments(__doc__, "reuse.png")
    result = open_result(args.results, "reuse")
    best = count_diverged(otafl.select_tuned(result, over="learning_rate"))
    reuses = sorted({parse_reuse(label) for label in map(str, best["topology"].values)})
    colours = dict(zip(reuses, COLOURS, strict=False))
    accuracy = select_at_end(best, "test_accuracy")
    joules = sum_over_devices(best["tx_energy_j"])
    seconds, radiated = compute_spent(best, best["sim_time_s"]), compute_spent(best, joules)
    print(f"steps tried: {', '.join(f'{x:g}' for x in result['learning_rate'].values)}")
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharey=True)
    for axis, radius in zip(axes, best["cell_radius_m"].values, strict=True):
        print_head(
            f"Radius {radius:g} m: mean ± deviation of {best.sizes['trial']} trials",
            *("cloud", "reuse", "step", "test accuracy", "points above cells alone"),
            *("points above reuse 1", f"seconds to {TARGET:.0%}", f"joules to {TARGET:.0%}"),
        )
        here = {"cell_radius_m": radius}
        alone: dict[int, xr.DataArray] = {}
        for cloud in (False, True):
            first = None
            for label in map(str, best["topology"].values):
                reuse = parse_reuse(label)
                if label.startswith("hierarchical") != cloud:
                    continue
                at = here | {"topology": label}
                own = accuracy.sel(at)
                first = own if first is None else first
                alone.setdefault(reuse, own)
                costs = [one.sel(at).values for one in (seconds, radiated)]
                print_row(
                    *("yes" if cloud else "no", reuse, f"{float(best['learning_rate'].sel(at)):g}"),
                    f"{float(own.mean()):.3f}" if cloud else format_mean_std(own.values),
                    format_difference(own, alone[reuse]) if cloud else "",
                    "" if own is first else format_difference(own, first),
                    *map(format_reached, costs),
                )
                name = f"reuse {reuse}{', cloud' if cloud else ''}"
                style = {"ls": "-" if cloud else "--", "color": colours[reuse], "label": name}
                one = best.sel(at)
                curve, spent_s = one["test_accuracy"], one["sim_time_s"].mean("trial")
                draw_band(axis, spent_s, curve, compute_half_interval(curve), **style)
        axis.set(title=f"cells of {radius:g} m", xlabel="simulated time (s)")
        axis.grid(alpha=0.3)
    compare(best, radiated, reuses)
    axes[0].set_ylabel("test accuracy, 95 % interval")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    command(main)
