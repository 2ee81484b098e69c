"""FedHM, HeteroFL and slim FedAvg with the same clipping, each at the step that is best for its
smallest model on training images that nobody trains on; then trials of another seed, in pairs.

    for f in fedhm_fair_steps fedhm_fair_small_steps fedhm_fair; do
      otafl sweep studies/fedhm_fair/$f.yaml
    done
    python -m studies.fedhm_fair.analyse [results] [--figure fedhm_fair.png]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    compute_gain,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

METHODS = {"FedAvg, slim": "C2", "FedHM": "C0", "HeteroFL": "C1"}
CLIPS = {"unclipped": "-", "clipped at 1": "--"}
ORDER = [(name, clip) for name in METHODS for clip in CLIPS]  # of both scenarios
RIVALS = (("FedHM", "FedAvg, slim"), ("FedHM", "HeteroFL"), ("HeteroFL", "FedAvg, slim"))
PAIRS = (*((*both, "smallest") for both in RIVALS), (*RIVALS[1], "largest"))


def read_searches(results: Path) -> dict[tuple[str, str], list[xr.DataArray]]:
    """Accuracy [learning_rate, trial] of each size on held-out images; nan at a step not tried."""
    found = read_ends(open_result(results, "fedhm_fair_steps"))
    small = read_end(open_result(results, "fedhm_fair_small_steps"), "level_test_accuracy")
    small = small.isel(level=0, drop=True).astype(float)
    extended = xr.concat([small, found[ORDER[0]][0]], "learning_rate", coords="minimal")
    found[ORDER[0]] = [extended.sortby("learning_rate")]
    steps = extended["learning_rate"]
    return {key: [one.reindex_like(steps) for one in sizes] for key, sizes in found.items()}


def read_ends(ds: xr.Dataset) -> dict[tuple[str, str], list[xr.DataArray]]:
    """Accuracy of each size after the last round, the largest first."""
    last = read_end(ds, "level_test_accuracy").astype(float).transpose("zip", ..., "level")
    levels = {name: range(1 if "slim" in name else 4) for name in METHODS}
    return {key: [last[at, ..., k] for k in levels[key[0]]] for at, key in enumerate(ORDER)}


def main() -> None:
    args = parse_study_arguments(__doc__, "fedhm_fair.png")
    tried, ds = read_searches(args.results), open_result(args.results, "fedhm_fair")
    found, steps = read_ends(ds), tried[ORDER[0]][0]["learning_rate"].values
    plt.rcParams.update(TYPE | {"axes.grid": True, "grid.alpha": 0.3})
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    columns = "method", *(f"step {step:g}" for step in steps), "best (* an end)", "best, all sizes"
    count = tried[ORDER[0]][0].sizes["trial"]
    print_head(f"Smallest model, held-out images, {count} trials", *columns)
    for key, sizes in tried.items():
        means = 100 * np.stack([one.mean("trial", skipna=False) for one in sizes])
        ends = np.flatnonzero(np.isfinite(means[-1]))[[0, -1]]
        best = [int(np.nanargmax(one)) for one in (means[-1], means.mean(0))]
        said = (f"{steps[k]:g}{'*' * (k in ends)}" for k in best)
        cells = ("-" if np.isnan(one) else f"{one:.1f}" for one in means[-1])
        print_row(", ".join(key), *cells, *said)
        extremes = np.stack([100 * sizes[-1].min("trial"), 100 * sizes[-1].max("trial")])
        style = {"fmt": f"o{CLIPS[key[1]]}{METHODS[key[0]]}", "capsize": 3}
        left.errorbar(steps, means[-1], np.abs(extremes - means[-1]), label=", ".join(key), **style)
    left.set(title="held-out images, bars: range of two trials", xlabel="step", xscale="log")
    left.set(ylabel="smallest model, %", ylim=(55, None))
    left.set_xticks(steps, [f"{step:g}" for step in steps])
    left.minorticks_off()
    left.legend(fontsize="small", loc="lower left")
    columns = "method", "step", "largest to smallest, %", "smallest: minus unclipped (95 %)"
    print_head(f"Test set, {ds.sizes['trial']} trials", *columns)
    for (key, sizes), label in zip(found.items(), ds["algorithm"].values, strict=True):
        step = str(label).partition("learning_rate=")[2].partition(",")[0]
        own = format_points(sizes[-1], found[key[0], "unclipped"][-1]) if "at" in key[1] else ""
        print_row(
            ", ".join(key),
            step,
            " / ".join(format_mean_std(100 * one.values) for one in sizes),
            own,
        )
    print_head("Points, same trial (95 %)", "difference", *CLIPS)
    for at, (one, other, size) in enumerate(PAIRS):
        k = 0 if size == "largest" else -1
        both = [[found[name, clip][k] for name in (one, other)] for clip in CLIPS]
        print_row(f"{one} minus {other}, {size} models", *(format_points(*pair) for pair in both))
        for k, (mean, low, high) in enumerate(100 * compute_gain(*pair) for pair in both):
            spans = [[mean - low], [high - mean]]
            right.errorbar(mean, -at - 0.2 * k, xerr=spans, fmt=f"{'os'[k]}C{3 + k}", capsize=4)
    right.axvline(0, color="black", lw=1)
    right.set_yticks(-0.1 - np.arange(len(PAIRS)), ["{}\n- {},\n{}".format(*one) for one in PAIRS])
    right.legend(right.containers[:2], list(CLIPS), fontsize="small", title="test set")
    right.set_xlabel("points, 95 % interval over pairs of trials")
    figure.savefig(args.figure, dpi=150)


if __name__ == "__main__":
    command(main)
