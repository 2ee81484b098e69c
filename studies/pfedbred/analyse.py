r"""Tables 1 to 4 and figures 2, 3 and 6 of the pFedBreD paper (Shi et al. 2023), Fashion-MNIST
columns, from the results of studies/pfedbred/pfedbred_*.yaml.

    for f in table1_mclr fedem fedem_dnn table1_dnn table1_dnn_200 table1_dnn_fedem table3 \
             table3_dnn table4 table4_alone coherence fig3 fig9_dnn fig6 fig6_dnn fig6_trials; do
      otafl sweep studies/pfedbred/pfedbred_$f.yaml
    done
    python -m studies.pfedbred.analyse [results] [--figures studies]
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from scipy.signal import savgol_filter

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, LINES
from otafl.results.end_values import count_diverged, select_final
from studies.common.tables import (
    command,
    expand_points,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

GLOBAL, PERSONAL, TUNED = "test_accuracy", "personal_own_test_accuracy", "tuned_own_test_accuracy"

PAPER = {  # Table 1, Fashion-MNIST: (MCLR, DNN); Table 2 for lg and meg
    "FedAvg (G)": ("82.75", "80.09"),
    "FedAvg+AM (G)": ("82.58", "81.03"),
    "FedEM (G)": ("95.78", "96.42"),
    "pFedBayes (P)": ("98.46", "98.67"),
    "FedAMP (P)": ("98.63", "98.72"),
    "pFedMe (P)": ("97.60", "98.63"),
    "pFedMe+FT (P)": ("97.63", "98.39"),
    "pFedMe+AM (P)": ("97.57", "98.67"),
    "Per-FedAvg (P)": ("94.28", "97.46"),
    "Per-FedAvg+FT (P)": ("95.76", "98.10"),
    "Per-FedAvg+AM (P)": ("92.08", "98.24"),
    "lg (P)": ("98.3", "98.4"),
    "meg (P)": ("97.8", "98.6"),
    "mh (P)": ("98.44", "98.73"),
    "mh+FT (P)": ("98.51", "98.98"),
    "mh+AM (P)": ("98.48", "98.75"),
}
ROWS = (  # name, how its point is called (a part of the label), whether with AM, variable
    ("FedAvg (G)", "fedavg", False, GLOBAL),
    ("FedAvg+AM (G)", "fedavg", True, GLOBAL),
    ("FedAvg+FT (P)", "fedavg", False, TUNED),
    ("FedProx (G)", "fedprox", False, GLOBAL),
    ("SCAFFOLD (G)", "scaffold", False, GLOBAL),
    ("FedEM (G)", "fedem", False, GLOBAL),
    ("FedEM (P)", "fedem", False, PERSONAL),
    ("pFedBayes (P)", "pfedbayes", False, PERSONAL),
    ("FedAMP (P)", "fedamp", False, PERSONAL),
    ("FedFomo (P)", "fedfomo", False, PERSONAL),
    ("FedPAC (P)", "fedpac", False, PERSONAL),
    ("pFedHN (P)", "pfedhn", False, PERSONAL),
    ("Ditto (P)", "ditto", False, PERSONAL),
    ("APFL (P)", "apfl", False, PERSONAL),
    ("FedRep (P)", "fedrep", False, PERSONAL),
    ("local only (P)", "local_only", False, PERSONAL),
    ("pFedMe (P)", "pfedme", False, PERSONAL),
    ("pFedMe+FT (P)", "pfedme", False, TUNED),
    ("pFedMe+AM (P)", "pfedme", True, PERSONAL),
    ("Per-FedAvg (P)", "per_fedavg", False, PERSONAL),
    ("Per-FedAvg+FT (P)", "per_fedavg", False, TUNED),
    ("Per-FedAvg+AM (P)", "per_fedavg", True, PERSONAL),
    ("lg (P)", "strategy=lg", False, PERSONAL),
    ("meg (P)", "strategy=meg", False, PERSONAL),
    ("mh (P)", "strategy=mh", False, PERSONAL),
    ("mh+FT (P)", "strategy=mh", False, TUNED),
    ("mh+AM (P)", "strategy=mh", True, PERSONAL),
    ("mh, as in the text (P)", "variant=paper", False, PERSONAL),
    ("mh (G)", "strategy=mh", False, GLOBAL),
    ("mh+AM (G)", "strategy=mh", True, GLOBAL),
)

LONGER = {"mclr": (), "dnn": ("table1_dnn_200", "table1_dnn_fedem")}
"""Column of Table 1 -> what was run longer."""
TABLE_3 = {  # of the scenario's name -> devices aggregated -> percent of the paper
    "": {10: 80.0, 20: 82.6, 50: 81.8, 100: 82.7},
    "_dnn": {10: 75.1, 20: 79.6, 50: 79.4, 100: 79.3},
}
ENDS = {  # model -> over what -> better and worse (lambda, eta) in Fig. 6's first trial
    "G": {"lambda": ((100, 0.5), (15, 0.5)), "eta": ((15, 0), (15, 0.5))},
    "P": {"lambda": ((15, 0.5), (1, 0.5)), "eta": ((15, 0.5), (15, 0))},
}
CONTRASTS = {
    "G, change over lambda minus change over eta": (("G", "lambda"), ("G", "eta")),
    "P, change over lambda minus change over eta": (("P", "lambda"), ("P", "eta")),
    "over lambda, change of G minus change of P": (("G", "lambda"), ("P", "lambda")),
    "over eta, change of G minus change of P": (("G", "eta"), ("P", "eta")),
}


def format_percent(values: xr.DataArray) -> str:
    return format_mean_std(100.0 * values.values)


def select_point(ds: xr.Dataset, part: str, doubled: bool) -> xr.Dataset | None:
    """The point of a method, with or without the trick AM; None if it was not run."""
    labels = [str(label) for label in ds["algorithm"].values]
    places = [
        i
        for i, label in enumerate(labels)
        if part in label.replace("(", " ").replace(")", " ").replace(",", " ").split()
        and ("server_learning_rate" in label) == doubled
        and ("variant" in label) == ("variant" in part)
    ]
    return ds.isel(zip=places[0]) if places else None


def open_runs(results: Path, model: str) -> list[xr.Dataset]:
    """The results that Table 1 has its rows from, those with more rounds first."""
    runs = [open_result(results, f"pfedbred_table1_{model}")]
    for name in LONGER[model]:
        with contextlib.suppress(otafl.UserError):  # a sweep that has not been run
            runs.insert(0, open_result(results, f"pfedbred_{name}"))
    return runs


def iterate_table_1(results: Path, model: str) -> Iterator[tuple[str, str, xr.DataArray]]:
    """Each row of Table 1 that was run: its name, what the paper has, and accuracies [trial, round]
    of the longest run.
    """
    runs = open_runs(results, model)
    for name, part, doubled, variable in ROWS:
        paper = PAPER.get(name, ("", ""))[model == "dnn"]
        for ds in runs:
            one = select_point(ds, part, doubled)
            if one is not None and variable in one and bool(one[variable].notnull().any()):
                yield name, paper, one[variable].dropna("round", how="all")
                break  # else a method that needs a layer below the last


def print_table_1(results: Path, figures: Path) -> None:
    """Of each run the last round, and the best one, which is what the authors' program prints."""
    models = ("mclr", "dnn")
    columns = ("paper", "last round", "best round")
    ds = open_result(results, "pfedbred_table1_mclr")
    title = f"Table 1, Fashion-MNIST, {ds.sizes['trial']} trials, 200 rounds (* 20)"
    heads = (f"{model.upper()}: {one}" for model in models for one in columns)
    print_head(title, "method", *heads)
    found: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name, *_ in ROWS}
    for model in models:
        for name, paper, values in iterate_table_1(results, model):
            last = int(values["round"].max())
            end = format_percent(values.sel(round=last)) + "*" * (last < 200)
            best = format_percent(values.sel(round=slice(1, None)).max("round"))
            found[name][model] = paper, end, best if last == 200 else ""
    for name, cells in found.items():
        print_row(name, *(one for model in models for one in cells.get(model, ("", "", ""))))


def print_participation(results: Path, figures: Path) -> None:
    """FedEM where the devices that are aggregated train, and where all do, in the same trials."""
    points = (select_point(ds, "fedem", False) for ds in open_runs(results, "mclr"))
    few = next(one for one in points if one is not None)
    names = GLOBAL, PERSONAL
    every = open_result(results, "pfedbred_fedem")
    runs = [[one[v].dropna("round", how="all") for v in names] for one in (few, every)]
    reads = ("G, round 200", "P, round 200", "G, best test", "P, best test")
    print_head("FedEM, MCLR, by the devices that train in a round", "devices", *reads)
    ends = [
        [v.sel(round=200) for v in curves] + [v[..., 1:].max("round") for v in curves]
        for curves in runs
    ]
    for devices, values in zip(("20", "100"), ends, strict=True):
        print_row(devices, *map(format_percent, values))
    print_row("100 - 20", *(format_points(b, a) for a, b in zip(*ends, strict=True)))


def print_table_3(results: Path, figures: Path) -> None:
    for name, printed in TABLE_3.items():
        with contextlib.suppress(otafl.UserError):  # a sweep that has not been run
            ds = open_result(results, f"pfedbred_table3{name}")
            model, last = "DNN" if name else "MCLR", int(ds["round"].max())
            row = f"Table 3: global model of mh, {model}, by the devices aggregated"
            print_head(f"{row}, {ds.sizes['trial']} trials", "", *map(str, printed))
            print_row("paper", *printed.values())
            values = count_diverged(ds, to_last_round=True)[GLOBAL]
            tests = values.sel(round=slice(1, None))
            reads = {f"{last} rounds": values.sel(round=last)}
            reads["mean of the last five tests"] = tests[..., -5:].mean("round")
            reads["best test"] = tests.max("round")
            for read, at in reads.items():
                print_row(read, *(format_percent(at.sel(senders=n)) for n in printed))
                both = ((at.sel(senders=n), at.sel(senders=20)) for n in printed)
                gains = (format_points(*pair) for pair in both)
                cells = ("" if n == 20 else gain for n, gain in zip(printed, gains, strict=True))
                print_row("minus 20 devices", *cells)


def print_table_4(results: Path, figures: Path) -> None:
    ds = open_result(results, "pfedbred_table4")
    paper = {
        ("fedavg", GLOBAL): (18.2, 14.8, 14.5, 11.9, 11.3, 11.2),
        ("pfedme", PERSONAL): (89.5, 58.2, 24.2, 12.3, 11.8, 10.6),
        ("pfedme", GLOBAL): (17.0, 14.3, 14.1, 12.3, 10.8, 10.9),
        ("pfedbred", PERSONAL): (89.6, 58.7, 25.2, 13.1, 11.1, 11.0),
        ("pfedbred", GLOBAL): (17.1, 14.6, 14.6, 12.4, 11.9, 11.9),
    }
    alphas = ds["alpha"].values
    print_head(
        "Table 4: Dirichlet, DNN, R = 1", "method", "whose", *(f"alpha = {a:g}" for a in alphas)
    )
    majority = ds["majority_accuracy"].isel(algorithm=0)
    print_row("majority class", "", *(format_percent(majority.sel(alpha=a)) for a in alphas))
    labels = [str(label) for label in ds["algorithm"].values]
    for (name, variable), printed in paper.items():
        (place,) = (i for i, label in enumerate(labels) if label.startswith(name))
        values = select_final(ds.isel(algorithm=place), variable)
        model = f"{name} ({'G' if variable == GLOBAL else 'P'})"
        print_row(model, "paper", *printed)
        print_row(model, "ours", *(format_percent(values.sel(alpha=a)) for a in alphas))
    alone = select_final(open_result(results, "pfedbred_table4_alone"), PERSONAL)
    print_row("local_only (P)", "ours", *(format_percent(alone.sel(alpha=a)) for a in alphas))


def print_figure_2(results: Path, figures: Path) -> None:
    ds = open_result(results, "pfedbred_coherence")
    last = int(ds["round"].max())
    strategies = [str(s) for s in ds["strategy"].values]
    print_head(
        "Fig. 2: log det of the updates' normalised Gram matrix, MCLR",
        *("strategy", "rounds 1 to 20", f"rounds {last - 19} to {last}"),
    )
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for place, strategy in enumerate(strategies):
        values = ds["update_coherence_log"].sel(strategy=strategy, round=slice(1, None))
        early, late = (
            format_mean_std(values.sel(round=part).mean("round").values)
            for part in (slice(1, 20), slice(last - 19, last))
        )
        print_row(strategy, early, late)
        smooth = savgol_filter(values.mean("trial").values, 11, 3)
        axis.plot(values["round"], smooth, label=strategy, color=COLOURS[place], ls=LINES[place])
    axis.set(xlabel="round", ylabel="log det of the normalised Gram matrix")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(figures / "pfedbred_fig2.png", dpi=150)


def print_figure_3(results: Path, figures: Path) -> None:
    """Of client 0, as the paper: the mean over the classes that it has, and over the others."""
    deviations = print_deviations(results, "pfedbred_fig3", "Figs. 3 and 9", "MCLR")
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for place, (strategy, away) in enumerate(deviations.items()):
        common = away["common"].mean("trial").values
        at = np.arange(10) + 0.2 * (place - 1.5)
        axis.bar(at, common, 0.2, color=COLOURS[place], label=strategy)
    axis.set(xlabel="class (device 0 has 0 and 1)", ylabel="deviation on the common test [nat]")
    axis.set_xticks(range(10))
    axis.grid(alpha=0.3, axis="y")
    axis.legend()
    figure.savefig(figures / "pfedbred_fig3.png", dpi=150)


def print_figure_9(results: Path, figures: Path) -> None:
    print_deviations(results, "pfedbred_fig9_dnn", "Fig. 9", "DNN")


def print_deviations(results: Path, name: str, title: str, model: str) -> dict[str, xr.Dataset]:
    """Print and return how far device 0's losses are from the devices' mean, by strategy."""
    ds = open_result(results, name).isel(round=[-1])
    print_head(
        f"{title}: deviation of device 0's loss from the devices' mean [nat], {model}",
        *("strategy", "common test, own classes", "common test, missing classes"),
        *("own test, own classes", "own test, missing classes"),
    )
    found = {}
    for strategy in map(str, ds["strategy"].values):
        one = ds.sel(strategy=strategy)
        found[strategy] = away = otafl.compute_loss_deviation(one).isel(device=0, round=0)
        held = one["device_own_class_samples"].isel(device=0) > 0
        cells = [
            format_mean_std(away[name].where(which).mean("class").values)
            for name in ("common", "own")
            for which in (held, ~held)
        ]
        print_row(strategy, *cells)
    return found


def print_figure_6(results: Path, figures: Path) -> None:
    """Accuracy by penalty and eta, and training alone in the same trials."""
    ds = count_diverged(open_result(results, "pfedbred_fig6"), to_last_round=True)
    etas, trials, last = ds["eta"].values, ds.sizes["trial"], int(ds["round"].max())
    alone = select_point(open_result(results, "pfedbred_table1_mclr"), "local_only", False)
    assert alone is not None
    alone = alone[PERSONAL].sel(round=last).isel(trial=slice(trials))
    ended = f"MCLR, {last} rounds, {trials} trials"
    for letter, values in (("G", ds[GLOBAL]), ("P", ds[PERSONAL])):
        print_head(f"Fig. 6: mh, {letter}, {ended}", "lambda", *(f"eta = {eta:g}" for eta in etas))
        for weight in ds["penalty"].values:
            row = values.sel(penalty=weight, round=last)
            print_row(f"{weight:g}", *(format_percent(row.sel(eta=eta)) for eta in etas))
    print_row("local only", format_percent(alone), *[""] * (len(etas) - 1))


def print_figure_6_trials(results: Path, figures: Path) -> None:
    """How far lambda and eta move each model, in trials that chose none of the points."""
    ds = count_diverged(open_result(results, "pfedbred_fig6_trials"), to_last_round=True)
    last, places = int(ds["round"].max()), {}
    for place, point in enumerate(expand_points(ds)):
        algorithm = point.scenario.algorithm
        places[float(algorithm.penalty), float(algorithm.eta)] = place
    title = f"Fig. 6: mh, MCLR, {last} rounds, {ds.sizes['trial']} fresh trials"
    reads = {"last round": 1, "mean of the last five": 5}
    values = {
        (letter, read): ds[name].isel(round=slice(-count, None)).mean("round")
        for letter, name in (("G", GLOBAL), ("P", PERSONAL))
        for read, count in reads.items()
    }
    print_head(f"{title}: changes in points (95 %)", "change, at (lambda, eta)", *reads)
    moved = {
        key: {
            over: [one.isel(zip=places[at], drop=True) for at in ends]
            for over, ends in ENDS[key[0]].items()
        }
        for key, one in values.items()
    }
    for letter, ends in ENDS.items():
        for over, (best, worst) in ends.items():
            points = "({:g}, {:g}) minus ({:g}, {:g})".format(*best, *worst)
            print_row(
                f"{letter}, over {over}: {points}",
                *(format_points(*moved[letter, read][over], decimals=2) for read in reads),
            )
    for said, (one, other) in CONTRASTS.items():
        pairs = [
            [best - worst for best, worst in (moved[w[0], read][w[1]] for w in (one, other))]
            for read in reads
        ]
        print_row(said, *(format_points(*pair, decimals=2) for pair in pairs))


def main() -> None:
    args = parse_study_arguments(__doc__)
    for part in (
        print_table_1,
        print_participation,
        print_table_3,
        print_table_4,
        print_figure_2,
        print_figure_3,
        print_figure_9,
        print_figure_6,
        print_figure_6_trials,
    ):
        try:
            part(args.results, args.figures)
        except otafl.UserError as error:  # a sweep that has not been run
            print(f"{part.__name__} left out: {error}", file=sys.stderr)


if __name__ == "__main__":
    command(main)
