"""Tables 2, 3, 7 and 8 and Figs. 2 to 4 and 8 of the FedHM paper (Yao et al.), its CIFAR-10 columns
beside Fashion-MNIST, and its factors over a fading uplink, from the results of
studies/fedhm/fedhm_*.yaml.

    for f in studies/fedhm/*.yaml; do otafl sweep $f; done
    python -m studies.fedhm.analyse [results] [--figure fedhm.png]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.paired import adjust_p_values, compare_values
from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, LINES
from studies.common.looks import TYPE, draw_band, draw_errorbars
from studies.common.tables import (
    command,
    expand_points,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

SPLITS = ("iid", "dirichlet")
METHODS = (
    "Split-Mix",
    "HeteroFL",
    "HeteroFL-V2",
    "HeteroFL-V3",
    "FedAvg, slim",
    "FedHM",
    "FedRolex",
)
TABLE_2 = {
    "Split-Mix": ("90.34 / 89.87 / 89.44 / 88.13", "85.93 / 84.82 / 84.54 / 83.27"),
    "HeteroFL": ("93.19 / 93.13 / 92.93 / 92.16", "91.57 / 91.53 / 91.03 / 90.19"),
    "HeteroFL-V2": ("93.19 / 92.77 / 92.01", "91.14 / 91.03 / 89.52"),
    "HeteroFL-V3": ("93.18 / 92.14", "91.05 / 89.93"),
    "FedAvg, slim": ("92.66", "90.21"),
    "FedHM": ("93.50 / 93.52 / 93.49 / 93.43", "91.59 / 91.51 / 91.55 / 91.47"),
}
TABLE_3 = {
    "Split-Mix": ("90.34 / 89.92 / 89.33 / 88.30", "85.91 / 84.85 / 84.48 / 83.30"),
    "HeteroFL": ("89.82 / 89.97 / 89.38 / 87.83", "84.49 / 86.44 / 86.28 / 84.08"),
    "HeteroFL-V2": ("91.14 / 91.03 / 89.52", "87.61 / 86.93 / 84.20"),
    "HeteroFL-V3": ("91.83 / 90.15", "87.46 / 84.45"),
    "FedAvg, slim": ("92.66", "90.21"),
    "FedHM": ("93.46 / 93.37 / 93.40 / 93.40", "91.22 / 91.21 / 91.23 / 91.17"),
}
TABLE_8 = (  # what, paper on CIFAR-10 IID and non-IID
    ("dense", "94.16", "92.50"),
    ("rank 1/2", "93.76", "92.25"),
    ("rank 1/4", "93.78", "92.05"),
    ("rank 1/8", "92.99", "90.95"),
    ("rank 1, all but the first layer", "below 80 (Fig. 8)", ""),
    ("slim 0.68", "93.75", "92.08"),
    ("slim 0.54", "93.17", "91.25"),
    ("slim 0.45", "92.66", "90.21"),
)
WHOLE = ("Split-Mix", "HeteroFL", "FedRolex")
"""Rivals whose largest model has about as many parameters as FedHM's."""
FRESH = (("FedAvg, slim", "smallest", -1), ("HeteroFL", "smallest", -1), ("HeteroFL", "largest", 0))
"""Rival, size and place of the level compared in fresh trials."""
UPLINKS = (
    "tangent, over the air",
    "tangent, whole base, over the air",
    "product, over the air",
    "HeteroFL, over the air",
    "factors, digital",
    "factors, digital, 20,000 symbols a round",
    "factors, digital, 200,000 symbols a round",
)


def find_best(one: xr.Dataset, levels: slice | int = slice(None)) -> xr.DataArray:
    """Best accuracy over rounds in percent, [trial, level], of the levels that there are."""
    values = one["level_test_accuracy"].isel(level=levels)
    return 100.0 * values.sel(round=slice(1, None)).max("round")


def select_smallest(one: xr.Dataset) -> xr.DataArray:
    """Best accuracy of the smallest size, [trial]."""
    return find_best(one).dropna("level", how="all").isel(level=-1, drop=True)


def format_cells(values: xr.DataArray) -> str:
    """Mean ± deviation over trials of each level."""
    there = values.dropna("level", how="all") if "level" in values.dims else values
    if "level" not in there.dims:
        return format_mean_std(there.values)
    return " / ".join(
        format_mean_std(there.isel(level=place).values) for place in range(there.sizes["level"])
    )


def format_sizes(one: xr.Dataset) -> str:
    """Parameters of the levels."""
    return " / ".join(f"{int(n):,}" for n in one["level_parameters"].isel(trial=0).dropna("level"))


def is_done(one: xr.Dataset) -> bool:
    """Whether the point has run."""
    return bool(one["level_test_accuracy"].notnull().any())


def print_mixes(
    results: Path, name: str, title: str, paper: dict[str, tuple[str, str]]
) -> xr.Dataset:
    """Tables 2 and 3."""
    ds = open_result(results, name)
    rounds, trials = int(ds["round"].max()), ds.sizes["trial"]
    print_head(
        f"{title}: best of {rounds} rounds, {trials} trials, largest model first",
        *("method", "parameters", "split", "paper (CIFAR-10)", "ours"),
        "smallest, minus slim FedAvg of the same trial",
    )
    for place, method in enumerate(METHODS):
        for at, split in enumerate(SPLITS):
            one = ds.isel(zip=place, partition=at)
            if is_done(one):
                printed = paper.get(method, ("", ""))[at]
                plain = ds.isel(zip=METHODS.index("FedAvg, slim"), partition=at)
                gap = select_smallest(one) - select_smallest(plain)
                print_row(
                    method,
                    format_sizes(one),
                    split,
                    printed,
                    format_cells(find_best(one)),
                    format_mean_std(gap.values),
                )
    return ds


def name_method(algorithm: Any) -> str:
    """Name the method of a point's settings."""
    names = {"fedhm": "FedHM", "split_mix": "Split-Mix", "fedrolex": "FedRolex"}
    variants = {4: "HeteroFL", 3: "HeteroFL-V2", 2: "HeteroFL-V3", 1: "FedAvg, slim"}
    return names.get(algorithm.name) or variants[len(algorithm.levels)]


def collect_steps(results: Path) -> dict[tuple[str, str], dict[float, xr.DataArray]]:
    """Collect the best accuracy in percent [trial, level] of the sizes that there are, by step.

    Method and split are the keys. A trial that diverged counts as its untrained model.
    """
    found: dict[tuple[str, str], dict[float, xr.DataArray]] = {}
    for file in ("fedhm_table3", "fedhm_table3_steps"):
        ds = open_result(results, file)
        for number, point in enumerate(expand_points(ds)):
            place, at = divmod(number, len(SPLITS))
            one, algorithm = ds.isel(zip=place, partition=at), point.scenario.algorithm
            key, step = (name_method(algorithm), SPLITS[at]), float(algorithm.learning_rate)
            if not is_done(one):
                continue
            found.setdefault(key, {})[step] = find_ends(one)
    return {key: dict(sorted(tried.items())) for key, tried in found.items() if len(tried) > 1}


def find_ends(one: xr.Dataset) -> xr.DataArray:
    """Best accuracy in percent [trial, level] by size; a diverged trial counts as untrained."""
    untrained = 100 * one["level_test_accuracy"].sel(round=0, drop=True)
    values = find_best(one).where(one["diverged_round"].isnull(), untrained)
    values = values.dropna("level", how="all").transpose("trial", "level")
    return xr.DataArray(values.values, dims=("trial", "level"))


def print_pairs(best: dict[tuple[str, str], xr.DataArray], title: str) -> None:
    """Print by how many points FedHM is above each rival in the same trials."""
    print_head(title, "rival", "size", *SPLITS)
    for rival in (method for method in METHODS if method != "FedHM" and (method, "iid") in best):
        sizes = {"smallest": -1} | ({"largest": 0} if rival in WHOLE else {})
        for size, place in sizes.items():
            pairs = ([best[method, at][:, place] for method in ("FedHM", rival)] for at in SPLITS)
            print_row(rival, size, *(format_points(*pair) for pair in pairs))


def print_steps(results: Path) -> None:
    """Table 3 at other steps: the smallest model, and FedHM against the others at the best step."""
    found = collect_steps(results)
    steps = sorted({step for tried in found.values() for step in tried})
    columns = (*(f"step {step:g}" for step in steps), "best (* an end)")
    print_head("Table 3 by step: the smallest model, best round, %", "method", "split", *columns)
    best: dict[tuple[str, str], xr.DataArray] = {}
    for key, tried in found.items():
        top = max(tried, key=lambda step: float(tried[step][:, -1].mean()))
        best[key] = tried[top] / 100
        small = {step: format_mean_std(one[:, -1].values) for step, one in tried.items()}
        end = "*" if top in (min(tried), max(tried)) else ""
        print_row(*key, *(small.get(step, "-") for step in steps), f"{top:g}{end}")
    print_pairs(best, "Table 3 at the best steps: points of FedHM above (95 %)")


def collect_fresh(results: Path, name: str) -> dict[tuple[str, str], tuple[float, xr.DataArray]]:
    """Collect step and best accuracies [trial, level] of fresh trials, by method and split."""
    ds = open_result(results, name)
    found = {}
    for number, point in enumerate(expand_points(ds)):
        place, at = divmod(number, len(SPLITS))
        algorithm = point.scenario.algorithm
        best = find_ends(ds.isel(zip=place, partition=at)) / 100
        found[name_method(algorithm), SPLITS[at]] = float(algorithm.learning_rate), best
    return found


def print_fresh(results: Path) -> None:
    """Tables 2 and 3 at the best steps of Table 3, in trials that chose no step."""
    third = collect_fresh(results, "fedhm_table3_best")
    # slim FedAvg has one level, so nothing changes from round to round
    slim = {key: value for key, value in third.items() if key[0] == "FedAvg, slim"}
    second = collect_fresh(results, "fedhm_table2_best") | slim
    for table, found in ((2, second), (3, third)):
        trials = found["FedHM", "iid"][1].sizes["trial"]
        title = f"Table {table} at the best steps, {trials} fresh trials"
        print_head(f"{title}: best round, %", "method", "split", "step", "largest to smallest")
        for key, (step, best) in found.items():
            cells = " / ".join(format_mean_std(level.values) for level in 100 * best.T)
            print_row(*key, f"{step:g}", cells)
        asked = [(*one, split) for one in FRESH for split in SPLITS]
        pairs = [
            [found[name, split][1][:, level] for name in ("FedHM", rival)]
            for rival, _, level, split in asked
        ]
        p = np.array([float(compare_values(one, other)["p"]) for one, other in pairs])
        print_head(
            f"{title}: points of FedHM above (95 %)",
            *("rival", "size", "split", "points", "trials in which FedHM is above", "p (t)"),
            f"p (Holm, {len(p)} comparisons)",
        )
        for one, pair, *tests in zip(asked, pairs, p, adjust_p_values(p), strict=True):
            rival, size, _, split = one
            above = int((pair[0] > pair[1]).sum())
            print_row(rival, size, split, format_points(*pair), above, *(f"{x:.2g}" for x in tests))


def print_homogeneous(ds: xr.Dataset) -> None:
    """Table 8, and what Figs. 3 and 4 ask: what it took to get there."""
    rounds, trials = int(ds["round"].max()), ds.sizes["trial"]
    accuracy = 100.0 * ds["level_test_accuracy"].isel(level=0)
    for at, split in enumerate(SPLITS):
        dense = accuracy.isel(zip=0, partition=at).max("round").mean("trial")
        target = float(np.floor(dense - 2.0))
        print_head(
            f"Table 8, Figs. 3, 4 and 8, {split}: one size for all, best of {rounds} rounds, "
            f"{trials} trials; cost until {target:.0f} %",
            *("model", "parameters", "MACs a sample", "paper (CIFAR-10)", "ours"),
            *("trials that got there", "rounds", "parameters exchanged", "MACs of training"),
        )
        for place, (model, *paper) in enumerate(TABLE_8):
            one = ds.isel(zip=place, partition=at)
            if not is_done(one):
                continue
            reached = one["round"].where(accuracy.isel(zip=place, partition=at) >= target)
            first = reached.min("round")
            there = first.dropna("trial")
            cost = ["-"] * 3
            if there.size:
                spent = [
                    float(one[name].where(one["round"] == first).max("round").mean())
                    for name in ("exchanged_parameters", "training_macs")
                ]
                cost = [f"{float(there.mean()):.0f}", *(f"{value:.3g}" for value in spent)]
            macs = f"{int(one['level_macs'].isel(trial=0, level=0)):,}"
            print_row(
                model,
                format_sizes(one),
                macs,
                paper[at],
                format_cells(find_best(one)),
                there.size,
                *cost,
            )


def print_partners(third: xr.Dataset, mix: xr.Dataset, alone: xr.Dataset) -> None:
    """Table 7: the smallest model of each mix."""
    print_head(
        "Table 7: the smallest FedHM model (rank 1/8) by its partners, levels fixed",
        *("levels", "paper (CIFAR-10), IID", "ours, IID", "paper, non-IID", "ours, dirichlet"),
    )
    fedhm = METHODS.index("FedHM")
    for levels, one, place, printed in (
        ("1, 1/2, 1/4, 1/8", third.isel(zip=fedhm), 3, ("93.43 (dynamic)", "91.47 (dynamic)")),
        ("1/2 (x2), 1/4, 1/8", mix.isel(zip=0), 2, ("93.35", "91.25")),
        ("1/4 (x3), 1/8", mix.isel(zip=1), 1, ("93.19", "90.95")),
        ("1/8 (x4)", alone.isel(zip=3), 0, ("92.99", "90.95")),
    ):
        ours = [format_cells(find_best(one.isel(partition=at), place)) for at in range(2)]
        print_row(levels, printed[0], ours[0], printed[1], ours[1])


def print_uplinks(ds: xr.Dataset) -> None:
    """What no paper has: unequal ranks over a fading channel."""
    rounds, trials = int(ds["round"].max()), ds.sizes["trial"]
    snrs = ds["snr_db"].values
    print_head(
        f"Unequal devices over Rayleigh fading: {rounds} rounds, {trials} trials; last global",
        *("sends", *(f"{snr:g} dB" for snr in snrs)),
        *(f"minus product, same trial, {snr:g} dB" for snr in snrs),
        "symbols a round",
    )
    last = 100.0 * ds["test_accuracy"].sel(round=rounds)
    product = last.isel(zip=UPLINKS.index("product, over the air"), drop=True)
    spent = ds["uplink_symbols"].sel(round=rounds).mean("trial") / rounds
    for place, name in enumerate(UPLINKS):
        one = last.isel(zip=place, drop=True)
        print_row(
            name,
            *(format_mean_std(one.sel(snr_db=snr).values) for snr in snrs),
            *(format_mean_std((one - product).sel(snr_db=snr).values) for snr in snrs),
            " / ".join(f"{float(spent.isel(zip=place).sel(snr_db=snr)):,.0f}" for snr in snrs),
        )


def draw(third: xr.Dataset, alone: xr.Dataset, to: Path) -> None:
    """Fig. 2 (levels fixed, smallest model) and Fig. 8 (accuracy against size)."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for at, split in enumerate(SPLITS):
        left, right = axes[at]
        for place, method in enumerate(METHODS):
            one = third.isel(zip=place, partition=at)
            if not is_done(one) or method in ("HeteroFL-V2", "HeteroFL-V3"):
                continue
            curves = one["level_test_accuracy"].dropna("level", how="all").isel(level=-1)
            style = {"color": COLOURS[place % len(COLOURS)], "ls": LINES[place % len(LINES)]}
            draw_band(left, curves["round"].values, curves, label=method, **style)
        for label, places, marker in (("low rank", range(5), "o"), ("slim", (0, 5, 6, 7), "s")):
            points = [alone.isel(zip=place, partition=at) for place in places]
            x = np.array([float(one["level_parameters"].isel(trial=0, level=0)) for one in points])
            y = xr.concat([find_best(one, 0) / 100 for one in points], "size")
            order = np.argsort(x)
            style = {"color": COLOURS[0 if marker == "o" else 1], "marker": marker}
            draw_errorbars(right, x[order], y.isel(size=order), label=label, **style)
        left.set(title=f"smallest model, levels fixed, {split}", xlabel="round")
        left.set_ylabel("test accuracy, mean ± deviation")
        right.set(title=f"one size for all, {split}", xlabel="parameters", xscale="log")
        right.set_ylabel("best test accuracy, ± deviation")
        right.set_xticks((2000, 5000, 10_000, 20_000), ("2,000", "5,000", "10,000", "20,000"))
        right.minorticks_off()
        for axis in (left, right):
            axis.grid(alpha=0.3)
    for axis in axes[1]:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
    figure.savefig(to, dpi=150)


def main() -> None:
    args = parse_study_arguments(__doc__, "fedhm.png")
    print_mixes(args.results, "fedhm_table2", "Table 2, levels change (dynamic)", TABLE_2)
    third = print_mixes(args.results, "fedhm_table3", "Table 3, levels fixed", TABLE_3)
    print_steps(args.results)
    print_fresh(args.results)
    alone = open_result(args.results, "fedhm_table8")
    print_partners(third, open_result(args.results, "fedhm_table7"), alone)
    print_homogeneous(alone)
    print_uplinks(open_result(args.results, "fedhm_over_the_air"))
    draw(third, alone, args.figure)


if __name__ == "__main__":
    command(main)
