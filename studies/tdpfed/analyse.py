r"""Tables II to IV and Figs. 2 and 3 of the TDPFed paper (Wang, Jin, Liu, Zong, Shao, Li), their
MNIST columns on Fashion-MNIST, from the results of studies/tdpfed/tdpfed_*.yaml.

    for f in table2 table3_rivals table3_sar table3_alone table4 \
             table4_steps table4_half long long_rates; do
      otafl sweep studies/tdpfed/tdpfed_$f.yaml
    done
    python -m studies.tdpfed.analyse [results] [--figure tdpfed.png]

The losses are drawn beside the figure, in tdpfed_losses.png.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, LINES
from otafl.results.end_values import select_final
from studies.common.looks import (
    TYPE,
    compute_half_interval,
    draw_band,
    draw_errorbars,
    make_frame,
    save,
)
from studies.common.tables import (
    command,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

GLOBAL, PERSONAL = "own_test_accuracy", "personal_own_test_accuracy"
TABLE_2 = {("afm", 2.0): 98.97, ("act", 2.0): 99.07, ("afm", 1.5): 99.08, ("act", 1.5): 98.07}
TABLE_3 = (  # method, paper (MNIST), whose model the paper's number is
    ("TDPFed x1.5", 99.04, PERSONAL),
    ("TDPFed x2", 99.16, PERSONAL),
    ("FedAvg", 96.78, GLOBAL),
    ("pFedMe", 98.64, PERSONAL),
)
SUBSETS = (
    ("FedAvg (s.a.r.) x1.5", 96.15),
    ("FedAvg (s.a.r.) x2", 95.80),
    ("FedAvg, sent ones averaged, x1.5", ""),
    ("FedAvg, sent ones averaged, x2", ""),
)
TABLE_4 = (  # of the scenario's points: what is set otherwise, paper (MNIST)
    ("baseline", 98.97),
    ("lambda = 8", 98.77),
    ("lambda = 10", 98.91),
    ("beta = 1.4", 98.95),
    ("beta = 1.8", 99.11),
    ("s = 2", 97.79),
    ("s = 8", 97.85),
    ("s' = 12", 98.94),
    ("s' = 22", 98.88),
)
LONGER = (  # place, method and whose model, variable
    (3, "TDPFed x2, personal", PERSONAL),
    (2, "pFedMe, personal", PERSONAL),
    (1, "each device alone", PERSONAL),
    (0, "FedAvg, global", GLOBAL),
    (2, "pFedMe, global", GLOBAL),
    (3, "TDPFed x2, global", GLOBAL),
    (4, "TDPFed x1.5, personal", PERSONAL),
    (4, "TDPFed x1.5, global", GLOBAL),
    (5, "FedAvg (s.a.r.) x1.5, global", GLOBAL),
    (6, "FedAvg (s.a.r.) x2, global", GLOBAL),
    (7, "FedAvg, sent ones averaged, x1.5, global", GLOBAL),
    (8, "FedAvg, sent ones averaged, x2, global", GLOBAL),
)
DRAWN = {3: COLOURS[1], 2: COLOURS[3], 0: COLOURS[2], 1: COLOURS[4]}
"""Places of these that the figure has, with the colours of Table III."""
LONGER_SHOWN = (20, 200, 800)
"""Rounds, of those that were tested."""
COMPARED = (  # places, and the variable of both
    ("each device alone minus TDPFed x2, personal", 1, 3, PERSONAL),
    ("pFedMe minus TDPFed x2, personal", 2, 3, PERSONAL),
    ("FedAvg minus TDPFed x2, global", 0, 3, GLOBAL),
    ("pFedMe minus FedAvg, global", 2, 0, GLOBAL),
    ("TDPFed x1.5 minus TDPFed x2, personal", 4, 3, PERSONAL),
    ("pFedMe minus TDPFed x1.5, personal", 2, 4, PERSONAL),
    ("TDPFed x1.5 minus TDPFed x2, global", 4, 3, GLOBAL),
    ("FedAvg (s.a.r.) x1.5 minus FedAvg, global", 5, 0, GLOBAL),
    ("FedAvg (s.a.r.) x2 minus FedAvg, global", 6, 0, GLOBAL),
    ("FedAvg, sent ones averaged, x2, minus FedAvg, global", 8, 0, GLOBAL),
)
LOSSES = (  # panel, place, method, line, variable
    (0, 3, "TDPFed x2", "-", "train_loss"),
    (0, 2, "pFedMe", "-", "train_loss"),
    (0, 0, "FedAvg", "-", "train_loss"),
    (0, 1, "each device alone", "-", "train_loss"),
    (1, 3, "TDPFed x2", "-", "personal_own_test_loss"),
    (1, 2, "pFedMe", "-", "personal_own_test_loss"),
    (1, 1, "each device alone", "-", "personal_own_test_loss"),
    (1, 3, "TDPFed x2", "--", "own_test_loss"),
    (1, 2, "pFedMe", "--", "own_test_loss"),
    (1, 0, "FedAvg", "--", "own_test_loss"),
)
RATIOS = (  # places, and the variable of both
    ("training loss, TDPFed x2 over pFedMe", 3, 2, "train_loss"),
    ("training loss, TDPFed x2 over FedAvg", 3, 0, "train_loss"),
    ("training loss, TDPFed x2 over each device alone", 3, 1, "train_loss"),
    ("test loss, personal, TDPFed x2 over pFedMe", 3, 2, "personal_own_test_loss"),
    ("test loss, personal, TDPFed x2 over each device alone", 3, 1, "personal_own_test_loss"),
    ("test loss, global, TDPFed x2 over FedAvg", 3, 0, "own_test_loss"),
)


def format_cell(one: xr.Dataset, variable: str) -> str:
    """In percent, after the last round."""
    if variable not in one or not bool(one[variable].notnull().any()):
        return ""
    return format_mean_std((100.0 * select_final(one, variable)).values)


def format_symbols(one: xr.Dataset) -> str:
    """Reals that a device sends in a round."""
    last = int(one["round"].max())
    each = one["uplink_symbols"].sel(round=last) / last
    return f"{float(each.mean()):,.0f}"


def print_table_4(ds: xr.Dataset) -> None:
    """One setting at a time, beside the same trials at the baseline's."""
    print_head(
        f"Table IV: {int(ds['round'].max())} rounds, {ds.sizes['trial']} trials",
        *("settings", "paper (MNIST)", "minus baseline", "personal, last", "minus baseline"),
        *("global, last", "minus baseline"),
    )
    for place, (setting, printed) in enumerate(TABLE_4):
        cells: list[str] = []
        for variable in (PERSONAL, GLOBAL):
            values = select_final(ds, variable)
            one, base = values.isel(zip=place), values.isel(zip=0)
            mean = (
                f"{100.0 * float(one.mean()):.1f}" if place else format_mean_std(100 * one.values)
            )
            cells += [mean, format_points(one, base) if place else ""]
        off = f"{printed - TABLE_4[0][1]:+.2f}" if place else ""
        print_row(setting, printed, off, *cells)


def print_solver_steps(ds: xr.Dataset, between: xr.Dataset, half: xr.Dataset) -> None:
    """All s from 2 to 8, and the paper's with half the step, in the last round that all have."""
    runs = {int(s): between.sel(solver_steps=s) for s in between["solver_steps"].values}
    runs |= {s: ds.isel(zip=place) for s, place in ((2, 5), (5, 0), (8, 6))}
    halves = {int(s): half.sel(solver_steps=s) for s in half["solver_steps"].values}
    last = min(int(one["round"].max()) for one in (ds, between, half))
    title = f"Table IV by every s, after {last} rounds"
    print_head(title, "eta_p", "model", *(f"s = {s}" for s in sorted(runs)))
    for step, found in ((0.08, runs), (0.04, halves)):
        for name, variable in (("personal", PERSONAL), ("global", GLOBAL)):
            values = {
                s: format_mean_std((100.0 * one[variable].sel(round=last)).values)
                for s, one in found.items()
            }
            print_row(step, name, *(values.get(s, "") for s in sorted(runs)))


def print_long_runs(ds: xr.Dataset, axes: Axes) -> None:
    """Accuracies by round, and what they gain over each other in the same trials."""
    known = [int(t) for t in ds["round"].values if t and bool(ds[GLOBAL].sel(round=t).any())]
    shown = [t for t in known if t in LONGER_SHOWN]
    title = f"Table III for longer: {known[-1]} rounds, {ds.sizes['trial']} trials"
    print_head(title, "method", *map(str, shown))
    for at, method, variable in LONGER:
        curve = ds[variable].isel(zip=at)
        print_row(method, *(format_mean_std(100.0 * curve.sel(round=t).values) for t in shown))
        if at in DRAWN:
            style = {"color": DRAWN[at], "ls": "-" if variable == PERSONAL else "--"}
            draw_band(axes, known, curve.sel(round=known), label=method, **style)
    print_head("Differences in the same trials", "difference", *map(str, shown))
    for difference, one, base, variable in COMPARED:
        a, b = (ds[variable].isel(zip=place) for place in (one, base))
        print_row(difference, *(format_points(a.sel(round=t), b.sel(round=t)) for t in shown))


def draw_log_interval(axis: Axes, values: xr.DataArray, **style: str) -> None:
    """Draw the geometric mean over trials by round, in its 95 % interval."""
    logs = np.log(values.sel(round=slice(1, None)).dropna("round", how="all"))
    mean, half = logs.mean("trial"), compute_half_interval(logs)
    axis.plot(logs["round"], np.exp(mean), **style)
    low, high = np.exp(mean - half), np.exp(mean + half)
    axis.fill_between(logs["round"], low, high, color=style["color"], alpha=0.15, lw=0)


def print_losses(ds: xr.Dataset, path: Path) -> None:
    """Print ratios of losses in the same trials, and draw the losses by round (Fig. 3)."""
    print_head("Ratios of losses", "ratio", *map(str, LONGER_SHOWN))
    for name, one, base, variable in RATIOS:
        shown = np.log(ds[variable].sel(round=list(LONGER_SHOWN)))
        logs = shown.isel(zip=one) - shown.isel(zip=base)
        half, mean = compute_half_interval(logs), logs.mean("trial")
        ends = np.exp(np.stack([mean, mean - half, mean + half], -1))
        print_row(name, *("{:.2f} [{:.2f}, {:.2f}]".format(*of_round) for of_round in ends))
    figure, axes = make_frame(2, "loss: mean, 95 % interval")
    colours = dict(zip((3, 2, 1, 0), COLOURS, strict=False))
    for panel, at, name, line, variable in LOSSES:
        draw_log_interval(
            axes[panel],
            ds[variable].isel(zip=at),
            color=colours[at],
            ls=line,
            label="" if panel else name,
        )
    titles = ("training", "own test samples: personal (-), global (- -)")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="round", yscale="log")
    save(figure, axes[0], path)


def draw_rounds(
    axis: Axes, values: xr.DataArray, shift: float, label: str, colour: str, line: str
) -> None:
    """Draw the trained models of a method, beside those of others by `shift` rounds."""
    trained = values.sel(round=slice(1, None)).dropna("round", how="all")
    at = trained["round"].values + shift
    draw_errorbars(axis, at, trained, label=label, color=colour, ls=line, marker="o")


def main() -> None:
    args = parse_study_arguments(__doc__, "tdpfed.png")
    columns = ("personal, last", "global, last")
    second = open_result(args.results, "tdpfed_table2")
    alone = open_result(args.results, "tdpfed_table3_alone")
    long = open_result(args.results, "tdpfed_long")
    majority = 100.0 * float(second["majority_accuracy"].mean())
    rounds, trials = int(second["round"].max()), second.sizes["trial"]
    print_head(
        f"Table II: {rounds} rounds, {trials} trials; the majority class alone: {majority:.1f} %",
        *("aggregation", "compression", "paper (MNIST)", *columns),
        *(f"{whose}, last, minus afm" for whose in ("personal", "global")),
    )
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 5.2), layout="constrained", sharey=True)
    left, longer = axes
    for name in second["aggregation"].values:
        for rate in second["compression_rate"].values:
            one = second.sel(aggregation=name, compression_rate=rate)
            if not bool(one[PERSONAL].notnull().any()):  # an unfinished sweep
                continue
            paper = TABLE_2.get((str(name), float(rate)), "")
            mean = second.sel(aggregation="afm", compression_rate=rate)
            ends = ([select_final(a, which) for a in (one, mean)] for which in (PERSONAL, GLOBAL))
            gains = ["" if name == "afm" else format_points(*pair) for pair in ends]
            print_row(
                name,
                f"x{rate:g}",
                paper,
                *(format_cell(one, variable) for variable in (PERSONAL, GLOBAL)),
                *gains,
            )
    same = long.isel(zip=1)  # each device alone, on the same samples and minibatches
    early = same.sel(round=slice(0, rounds))
    cell = format_cell(early.assign(final_round=early["final_round"].clip(max=rounds)), PERSONAL)
    print_row("each device alone", "", "", cell, *[""] * 3)
    third = open_result(args.results, "tdpfed_table3_rivals")
    subsets = open_result(args.results, "tdpfed_table3_sar")
    rounds, trials = int(third["round"].max()), third.sizes["trial"]
    print_head(
        f"Table III: {rounds} rounds, {trials} trials",
        *("method", "paper (MNIST)", *columns, "reals a round"),
    )
    for place, (method, paper, variable) in enumerate(TABLE_3):
        one = third.isel(zip=place)
        print_row(
            method,
            paper,
            *(format_cell(one, variable) for variable in (PERSONAL, GLOBAL)),
            format_symbols(one),
        )
        shift = 0.15 * (place - 1.5)
        label = method if variable == PERSONAL else f"{method}, global"
        draw_rounds(left, one[variable], shift, label, COLOURS[place], LINES[place])
    print_row(
        "each device alone",
        "",
        *(format_cell(alone, variable) for variable in (PERSONAL, GLOBAL)),
        format_symbols(alone),
    )
    for place, (method, printed) in enumerate(SUBSETS):
        one = subsets.isel(zip=place)
        share = "2/3" if "x1.5" in method else "1/2"
        print_row(
            method,
            printed,
            "",
            format_cell(one, GLOBAL),
            f"{share} of {format_symbols(one)}",
        )
    fourth = open_result(args.results, "tdpfed_table4")
    print_table_4(fourth)
    others = (open_result(args.results, f"tdpfed_table4_{name}") for name in ("steps", "half"))
    print_solver_steps(fourth, *others)
    rates = open_result(args.results, "tdpfed_long_rates")
    accuracies = [one[[PERSONAL, GLOBAL]].reset_coords(drop=True) for one in (long, rates)]
    print_long_runs(xr.concat(accuracies, "zip"), longer)
    print_losses(long, args.figure.with_name("tdpfed_losses.png"))
    titles = (f"Table III: {rounds} rounds", "Table III for longer")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="round")
        axis.grid(alpha=0.3)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=10)
    left.set(ylabel="own test accuracy, mean ± one deviation", ylim=(0.6, 1.0))
    left.set_xticks((5, 10, 15))
    figure.savefig(args.figure, dpi=150)


if __name__ == "__main__":
    command(main)
