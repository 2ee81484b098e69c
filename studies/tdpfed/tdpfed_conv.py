"""TDPFed's two aggregations on kernels of four modes: accuracy at every Adam step and at that which
validation samples choose, and what ACT's factors lose.

    otafl sweep studies/tdpfed/tdpfed_conv.yaml
    otafl sweep studies/tdpfed/tdpfed_conv_rivals.yaml
    python -m studies.tdpfed.tdpfed_conv [results] [--figure tdpfed_conv.png]
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, LINES
from otafl.results.end_values import select_end_total
from studies.common.looks import TYPE, draw_errorbars
from studies.common.tables import (
    command,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

RATE, ALGORITHM, LOST = "factor_learning_rate", "algorithm", "refactoring_error"
NAMES = {
    ("afm", "near", 50): "afm",
    ("act", "near", 50): "act, factors at hand, 50 sweeps",
    ("act", "random", 50): "act, random factors, 50 sweeps",
    ("act", "random", 1): "act, random factors, 1 sweep",
    ("tangent", "near", 50): "tangent",
}
RIVALS = {"personal_": {"local_only": "each device alone"}, "": {"fedavg": "FedAvg"}}
TITLES = {"personal_": "Personal models", "": "Global model"}


def select_at_best(ds: xr.Dataset, model: str, dim: str) -> tuple[xr.DataArray, int]:
    """Accuracy at the step that is best on the devices' validation samples, and its place."""
    row = select_end_total(ds, f"{model}own_validation_accuracy").mean("trial").fillna(0)
    place = int(row.argmax(dim))
    return select_end_total(ds, f"{model}own_test_accuracy").isel({dim: place}), place


def main() -> None:
    args = parse_study_arguments(__doc__, "tdpfed_conv.png")
    ds, rivals = (
        open_result(args.results, "tdpfed_conv"),
        open_result(args.results, "tdpfed_conv_rivals"),
    )
    keys = zip(*(ds[key].values for key in ("aggregation", "act_start", "act_sweeps")), strict=True)
    arms = {NAMES[a, b, int(c)]: ds.isel(zip=i) for i, (a, b, c) in enumerate(keys)}
    rates, said = ds[RATE].values, f"{int(ds['round'].max())} rounds, {ds.sizes['trial']} trials"
    labels = np.array([str(one).partition("(")[0] for one in rivals[ALGORITHM].values])
    plt.rcParams.update(TYPE | {"axes.grid": True, "grid.alpha": 0.3})
    figure, axes = plt.subplots(1, 3, figsize=(12, 5.2), layout="constrained")
    for axis, (model, title) in zip(axes, TITLES.items(), strict=False):
        steps = [f"eta {rate:g}" for rate in rates]
        print_head(f"{title}: {said}", "method", *steps, "at the best", "minus afm")
        base, _ = select_at_best(arms["afm"], model, RATE)
        for place, (name, one) in enumerate(arms.items()):
            values = 100 * select_end_total(one, f"{model}own_test_accuracy")
            means = values.mean("trial")
            found, best = select_at_best(one, model, RATE)
            cells = [
                f"{m:.1f}" if i != best else f"**{m:.1f}**" for i, m in enumerate(means.values)
            ]
            less = "" if name == "afm" else format_points(found, base)
            print_row(name, *cells, format_mean_std(100 * found.values), less)
            style = {"color": COLOURS[place], "ls": LINES[place], "marker": "osD^v"[place]}
            at = rates * 1.04 ** (place - 2)
            draw_errorbars(axis, at, values, label=name, **style)
            if name.startswith("act") and model:
                draw_errorbars(axes[2], at, 100 * select_end_total(one, LOST), **style)
        for key, name in RIVALS[model].items():
            found, best = select_at_best(rivals.isel({ALGORITHM: labels == key}), model, ALGORITHM)
            print_row(
                name,
                *[""] * len(rates),
                format_mean_std(100 * found.values),
                format_points(found, base),
            )
            level, half = 100 * float(found.mean()), 100 * float(found.std("trial", ddof=1))
            axis.axhline(level, color="0.4", lw=1, ls=":")
            axis.axhspan(level - half, level + half, color="0.4", alpha=0.12, lw=0)
            axis.text(
                rates[-1], level + half, name, va="bottom", ha="right", color="0.3", fontsize=10
            )
    axes[0].set_ylabel("accuracy on own test samples, %\n(mean ± deviation of three trials)")
    print_head("What act's factors lose of the mean tensor", "method", *steps)
    for name in (name for name in arms if name.startswith("act")):
        print_row(
            name,
            *(f"{100 * v:.2g} %" for v in select_end_total(arms[name], LOST).mean("trial").values),
        )
    for axis, title in zip(axes, (*TITLES.values(), "Lost by factoring again, %"), strict=True):
        axis.set(title=title, xlabel="Adam step of the factors, eta", xscale="log")
    axes[2].set_yscale("log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(args.figure, dpi=150)


if __name__ == "__main__":
    command(main)
