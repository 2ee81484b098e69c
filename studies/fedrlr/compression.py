"""Fig. 9 of the FedRLR paper: accuracy against the compression 1 / factor of the weights.

The rank or the rows of a method fix its ratio, or a weight of a penalty is tuned to meet it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, LINES, MARKERS
from otafl.results.end_values import select_end_total
from studies.common.tables import print_head, print_row
from studies.fedrlr.shared import list_models, open_result, tidy

FACTORS = (128, 64, 32, 16, 8)
"""The compression is 1 / factor."""
OF_ONE_RATIO = ("proposed 1 (GBMA)", "proposed 2 (CI)", "B3 pruning", "FedRLR+ (GBMA)")
"""Methods of Fig. 9 whose settings fix the ratio."""
MODELS = ("global", "local")


def draw_figure_9(results: Path, figures: Path) -> None:
    """Against the compression 1 / factor; the relaxed methods where they meet it."""
    ds = open_result(results, "fedrlr_fig9")
    names = OF_ONE_RATIO
    figure, axes = plt.subplots(1, 2, figsize=(11, 6), layout="constrained", sharey=True)
    of_model = dict(zip(MODELS, axes, strict=True))
    print_head("Fig. 9", "method", "model", *(f"1/{factor}" for factor in FACTORS))
    for place, name in enumerate(names):
        points = ds.isel(zip=slice(place * len(FACTORS), (place + 1) * len(FACTORS)))
        for model, variable in list_models(points):
            accuracy = select_end_total(points, variable)
            print_row(name, model, *(format_mean_std(values) for values in accuracy.values))
            draw_by_ratio(of_model[model], list(accuracy), name, place)
    relaxed = (
        ("B1 nuclear norm", tune_nuclear_norm(results)),
        ("B2 l1 norm", tune_l1_norm(results)),
    )
    for place, (name, found) in enumerate(relaxed, len(names)):
        met = [one["test_accuracy"] for one in found]
        print_row(name, "global", *(format_mean_std(one.values) for one in met))
        draw_by_ratio(of_model["global"], met, f"{name}, tuned to the ratio", place)
    place = len(names) + len(relaxed)
    points = open_result(results, "fedrlr_fig9_steps").sel(rank=[128 // f for f in FACTORS])
    for model, variable in list_models(points):
        accuracy = select_end_total(points, variable).transpose("rank", "trial")
        name = "proposed 1 (GBMA), 40 local steps"
        print_row(name, model, *(format_mean_std(values) for values in accuracy.values))
        draw_by_ratio(of_model[model], list(accuracy), name, place)
    print_head(
        "Fig. 9, relaxed",
        *("method", "ratio", "trials of 10", "weight", "rounds", "rank or density"),
    )
    for (name, found), weight in zip(relaxed, ("nuclear_weight", "l1_weight"), strict=True):
        for factor, one in zip(FACTORS, found, strict=True):
            print_row(name, f"1/{factor}", *format_row(one, weight))
    for model, axis in of_model.items():
        axis.axhline(0.8, color="0.5", lw=0.8, ls="--", label="the paper: above this everywhere")
        axis.set_xscale("log")
        axis.set_xticks([1 / f for f in FACTORS], [f"1/{f}" for f in FACTORS])
        axis.minorticks_off()
        tidy(axis, f"{model} model{'s' * (model == 'local')}", "share of the weights", ncols=1)
    axes[0].set_ylabel("test accuracy, mean ± deviation")
    figure.savefig(figures / "fedrlr_fig9.png", dpi=150)


def format_row(one: xr.Dataset, weight: str) -> tuple[str, ...]:
    rounds = one["at"].dropna("trial").values
    if not rounds.size:
        return "0", "", "", ""
    span = f"{min(rounds):g} to {max(rounds):g}"
    sizes = format_mean_std(one["size"].dropna("trial").values)
    return f"{rounds.size}", f"{float(one[weight]):g}", span, sizes


def draw_by_ratio(axis: Axes, found: Sequence[xr.DataArray], label: str, place: int) -> None:
    """Draw accuracies [trial] by ratio, each method's beside those of the others."""
    axis.errorbar(
        [1.03 ** (place - 3) / factor for factor in FACTORS],
        [float(one.mean()) for one in found],
        [float(one.std(ddof=1)) for one in found],
        label=label,
        color=COLOURS[place],
        ls=LINES[place % len(LINES)],
        marker=MARKERS[place],
        capsize=2,
    )


def select_tuned(ds: xr.Dataset, weight: str, size: str, limit: float) -> xr.Dataset:
    """Take the best round of each trial by validation accuracy whose rank or density is within the
    limit, and the weight with which most trials have one, of several the best by that accuracy.

    A trial without such a round counts as a guess, and its round and size are NaN.
    """
    ds = ds.assign(size=ds[size], at=ds["round"].broadcast_like(ds[size]))
    eligible_mask = ds["validation_accuracy"].where(ds["size"] <= limit).fillna(-1.0)
    taken = ds.isel(round=eligible_mask.argmax("round")).where(eligible_mask.max("round") >= 0)
    accuracy = taken["validation_accuracy"]
    score = accuracy.notnull().sum("trial") + accuracy.mean("trial").fillna(0.0)
    taken["test_accuracy"] = taken["test_accuracy"].fillna(ds["accuracy_guess"])
    return taken.isel({weight: int(score.argmax(weight))})


def tune_nuclear_norm(results: Path) -> list[xr.Dataset]:
    """B1 meets a ratio by its mean rank over the layers, of which the last has at most ten."""
    ds = open_result(results, "fedrlr_fig9_nuclear")
    limits = [(2 * 128 / factor + min(128 / factor, 10)) / 3 for factor in FACTORS]
    return [select_tuned(ds, "nuclear_weight", "weight_rank", limit) for limit in limits]


def tune_l1_norm(results: Path) -> list[xr.Dataset]:
    """B2 meets a ratio by its density, with 256 / factor rows of A."""
    ds = open_result(results, "fedrlr_fig9_l1")
    rows = [int(str(codec).split("rows=")[1].rstrip(")")) for codec in ds["codec"].values]
    found = []
    for factor in FACTORS:
        points = ds.isel(zip=[i for i, count in enumerate(rows) if count == 256 // factor])
        points = points.swap_dims(zip="l1_weight")
        found.append(select_tuned(points, "l1_weight", "weight_density", 1 / factor))
    return found
