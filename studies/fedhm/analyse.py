"""Tables 2, 3, 7 and 8 and Figs. 2 to 4 and 8 of the FedHM paper (Yao et al.), its CIFAR-10 columns
beside Fashion-MNIST, and its factors over a fading uplink, from the results of
studies/fedhm/fedhm_*.yaml.

    for f in studies/fedhm/*.yaml; do otafl sweep $f; done
    python -m studies.fedhm.analyse [results] [--figure fedhm.png]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, LINES
from studies.common.looks import TYPE, draw_band, draw_errorbars
from studies.common.tables import (
    command,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)
from studies.fedhm.levels import METHODS, SPLITS, find_best, format_levels, is_done, select_tests
from studies.fedhm.tuned import MIXES, print_fresh, print_steps, print_tests

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
RANK_ONE = "rank 1, all but the first layer"
TABLE_8 = (  # what, paper on CIFAR-10 IID and non-IID
    ("dense", "94.16", "92.50"),
    ("rank 1/2", "93.76", "92.25"),
    ("rank 1/4", "93.78", "92.05"),
    ("rank 1/8", "92.99", "90.95"),
    (RANK_ONE, "below 80 (Fig. 8)", ""),
    ("slim 0.68", "93.75", "92.08"),
    ("slim 0.54", "93.17", "91.25"),
    ("slim 0.45", "92.66", "90.21"),
)
TANGENT, PRODUCT, WIDTHS = (
    "tangent, over the air",
    "product, over the air",
    "HeteroFL, over the air",
)
UPLINKS = (
    TANGENT,
    "tangent, whole base, over the air",
    PRODUCT,
    WIDTHS,
    "factors, digital",
    "factors, digital, 20,000 symbols",
    "factors, digital, 200,000 symbols",
)
FRESH_UPLINKS = (TANGENT, PRODUCT, WIDTHS)


def print_mixes(
    results: Path, name: str, title: str, paper: dict[str, tuple[str, str]]
) -> xr.Dataset:
    """Tables 2 and 3."""
    ds = open_result(results, name)
    rounds, trials = int(ds["round"].max()), ds.sizes["trial"]
    print_head(
        f"{title}: best of {rounds} rounds, {trials} trials, largest model first",
        *("method", "split", "paper", "ours", "smallest minus slim FedAvg"),
    )
    for place, method in enumerate(METHODS):
        for at, split in enumerate(SPLITS):
            one = ds.isel(zip=place, partition=at)
            if is_done(one):
                printed = paper.get(method, ("", ""))[at]
                plain = ds.isel(zip=METHODS.index("FedAvg, slim"), partition=at)
                best = find_best(one)
                gap = best[:, -1] - find_best(plain)[:, -1]
                cells = printed, format_levels(best), format_mean_std(gap.values)
                print_row(method, split, *cells)
    return ds


def print_sizes(ds: xr.Dataset) -> None:
    """Table 8 and Fig. 8 at the paper's step."""
    rounds, trials = int(ds["round"].max()), ds.sizes["trial"]
    columns = (f"{who}, {split}" for split in SPLITS for who in ("paper", "ours"))
    title = f"Table 8 and Fig. 8: one size for all, best of {rounds} rounds, {trials} trials"
    print_head(title, "model", "parameters", *columns)
    for place, (model, *paper) in enumerate(TABLE_8):
        one = ds.isel(zip=place)
        count = int(one["level_parameters"].isel(partition=0, trial=0, level=0))
        best = (find_best(select_tests(one.isel(partition=at))) for at in range(len(SPLITS)))
        cells = zip(paper, map(format_levels, best), strict=True)
        print_row(model, f"{count:,}", *(cell for pair in cells for cell in pair))


def print_costs(ds: xr.Dataset, models: Sequence[str]) -> None:
    """Table 8 in fresh trials, and what Figs. 3 and 4 ask: what it took to get there."""
    rounds, trials = int(ds["round"].max()), ds.sizes["trial"]
    accuracy = 100.0 * ds["level_test_accuracy"].isel(level=0)
    for at, split in enumerate(SPLITS):
        dense = find_best(select_tests(ds.isel(zip=0, partition=at))).mean()
        target = float(np.floor(dense - 2.0))
        print_head(
            f"Table 8, Figs. 3 and 4 at step 0.3, {split}: best of {rounds} rounds, "
            f"{trials} trials; cost until {target:.0f} %",
            *("model", "ours", "trials", "rounds", "parameters exchanged", "MACs"),
        )
        for place, model in enumerate(models):
            one = ds.isel(zip=place, partition=at)
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
            print_row(model, format_levels(find_best(select_tests(one))), there.size, *cost)


def print_partners(third: xr.Dataset, mix: xr.Dataset, alone: xr.Dataset) -> None:
    """Table 7: the smallest model of each mix."""
    print_head(
        "Table 7: the smallest FedHM model (rank 1/8) by its partners, levels fixed",
        *("levels", "paper, iid", "ours, iid", "paper, dirichlet", "ours, dirichlet"),
    )
    fedhm = METHODS.index("FedHM")
    for levels, one, printed in (
        (MIXES[4], third.isel(zip=fedhm), ("93.43 (dynamic)", "91.47 (dynamic)")),
        (MIXES[3], mix.isel(zip=0), ("93.35", "91.25")),
        (MIXES[2], mix.isel(zip=1), ("93.19", "90.95")),
        (MIXES[1], alone.isel(zip=3), ("92.99", "90.95")),
    ):
        ours = [format_mean_std(find_best(one.isel(partition=at))[:, -1].values) for at in range(2)]
        print_row(levels, printed[0], ours[0], printed[1], ours[1])


def print_uplinks(ds: xr.Dataset) -> None:
    """What no paper has: unequal ranks over a fading channel."""
    rounds, trials = int(ds["round"].max()), ds.sizes["trial"]
    snrs = ds["snr_db"].values
    print_head(
        f"Unequal devices over Rayleigh fading: {rounds} rounds, {trials} trials; last global",
        *("sends", *(f"{snr:g} dB" for snr in snrs)),
        "minus product, 0 dB",
        "symbols a round",
    )
    last = 100.0 * ds["test_accuracy"].sel(round=rounds)
    product = last.isel(zip=UPLINKS.index(PRODUCT), drop=True)
    spent = ds["uplink_symbols"].sel(round=rounds).mean("trial") / rounds
    for place, name in enumerate(UPLINKS):
        one = last.isel(zip=place, drop=True)
        print_row(
            name,
            *(format_mean_std(one.sel(snr_db=snr).values) for snr in snrs),
            format_mean_std((one - product).sel(snr_db=0).values),
            " / ".join(f"{float(spent.isel(zip=place).sel(snr_db=snr)):,.0f}" for snr in snrs),
        )


def print_fresh_uplinks(ds: xr.Dataset) -> None:
    """What superposes at a low SNR, in fresh trials: coordinates, products and masked sums."""
    last = read_end(ds, "test_accuracy")
    ours = {name: last.isel(algorithm=place) for place, name in enumerate(FRESH_UPLINKS)}
    title = f"Unequal devices at -20 dB, {ds.sizes['trial']} fresh trials"
    pairs = {(name,): [one, ours[PRODUCT]] for name, one in ours.items() if name != PRODUCT}
    print_tests(f"{title}: points above products (95 %)", ["sends"], pairs)


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
            y = xr.concat([find_best(one)[:, 0] / 100 for one in points], "size")
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
    print_sizes(alone)
    fresh = [model for model, *_ in TABLE_8 if model != RANK_ONE]
    print_costs(open_result(args.results, "fedhm_table8_best"), fresh)
    print_uplinks(open_result(args.results, "fedhm_over_the_air"))
    print_fresh_uplinks(open_result(args.results, "fedhm_over_the_air_fresh"))
    draw(third, alone, args.figure)


if __name__ == "__main__":
    command(main)
