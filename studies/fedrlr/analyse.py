"""Figures 5 to 9 and Table II of the FedRLR paper (Xue and Lau), and why its global model fails,
from the results of studies/fedrlr/fedrlr_*.yaml. Fig. 10 is drawn by benchmarks/low_rank.py.

    for f in fedrlr_{benchmark,fig5,fig5_steps,fig6,fig6_steps,fig7,fig7_steps,fig8,fig9} \
        fedrlr_{fig9_steps,fig9_nuclear,fig9_l1,global_model,plus} fedavg_equal_symbols; do
      otafl sweep studies/fedrlr/$f.yaml
    done
    python -m studies.fedrlr.analyse [results] [--figures studies]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import otafl
from otafl import models
from otafl.analysis.summary import format_mean_std
from otafl.core.contracts import Workload
from otafl.engine.assembly import build_algorithm
from otafl.plots import COLOURS, LINES
from otafl.results.end_values import select_end_total
from studies.common.looks import draw_band
from studies.common.tables import (
    command,
    count_ideal_symbols,
    expand_points,
    parse_study_arguments,
    print_head,
    print_row,
)
from studies.fedrlr.compression import draw_figure_9
from studies.fedrlr.shared import format_at_round, list_models, open_result, tidy

READINGS = ("as printed", "1/K on the penalty alone", "that and 40 local steps")
SHORT = ("printed", "penalty", "40 steps")
"""Readings, as the tables name them."""
METHODS = (
    "benchmark (digital)",
    "proposed 1 (GBMA), as printed",
    "proposed 2 (CI), as printed",
    "proposed 1, 1/K on the penalty alone",
    "proposed 2, 1/K on the penalty alone",
    "proposed 1, that and 40 local steps",
    "proposed 2, that and 40 local steps",
    "B1 nuclear norm",
    "B2 l1, A 8 x 256",
    "B2 l1, A 200 x 256",
    "B3 pruning, A 8 x 256",
    "B3 pruning, A 200 x 256",
    "B4 quantisation, 8 bits",
    "FedRLR+ (GBMA)",
)
PAPER = {
    0: "100 %",
    5: "1.42 %",
    6: "1.44 %",
    7: "87.23 %",
    9: "75.49 %",
    11: "93.13 %",
    12: "100 %",
}
"""Table II, by place in METHODS; the paper has one proposed 1 and one proposed 2."""
BIASES = 522
SYMBOLS = 7_284
"""Of FedRLR+ of rank 4, whose biases are in its factors."""
BENCHMARK = 75 * (268_800 + BIASES)
"""The paper's 2.02e7 sub-carriers, to which biases make no difference."""
NEAREST = 74
"""Last evaluation of Fig. 8, of every second round, within the 75 rounds of Table II."""
SHOWN = (
    *((0, "", "o", 1), (7, "", "s", 1), (12, "", "p", 1), (8, "", "v", 1), (11, "", "^", 1)),
    *((1, "", "D", 1), (1, "local_", "P", 1), (5, "", "D", 40), (5, "local_", "P", 40)),
    (13, "", "X", 1),
)
"""Of the headline's figure: place in METHODS, model, marker, local steps."""
OF_STEPS = {1: COLOURS[0], 20: COLOURS[4], 40: COLOURS[2]}
MARKED = {
    "o": "digital FedAvg",
    "s": "B1 nuclear norm",
    "p": "B4 8 bits",
    "v": "B2 l1 or B3 pruning, 8 rows",
    "^": "B3 pruning, 200 rows",
    "D": "FedRLR, global model",
    "P": "FedRLR, local models",
    "X": "FedRLR+",
}
WEIGHTS = ("c1 = 0.006", "c1 = 0.06", "c1 = 0.6", "mu = 3", "mu = 0.3")
ARMS = {
    "exact product": ("fedrlr_fig8_steps", 0),
    "exact product, c1 = 0.9": ("fedrlr_fig8_steps", 1),
    "coded product": ("fedrlr_fig8_steps", 2),
    "coded product, c1 = 0.9": ("fedrlr_fig8_steps", 3),
    "the whole model (FedAvg)": ("fedrlr_fig8_steps_rivals", 0),
    "FedRLR+": ("fedrlr_fig8_steps_rivals", 1),
}
"""What the server computes free of error -> the result that tunes it, and its place there."""
UPLINKS = ("GBMA, 0 dB", "GBMA, 25 dB", "CI (tci), 25 dB")


def format_reached(rounds: xr.DataArray) -> tuple[str, float]:
    """Write the median of the rounds [trial] to a target, and its ends; return the median, too.

    A trial that does not reach the target counts as infinitely many rounds.
    """
    values = rounds.fillna(np.inf).values.astype(float)
    median, *ends = (float(one) for one in (np.median(values), values.min(), values.max()))
    said = [f"{one:g}" if np.isfinite(one) else "never" for one in (median, *ends)]
    whole = said[0] if len({*said}) == 1 else f"{said[0]} [{said[1]}, {said[2]}]"
    return whole, median


def format_share(mask: xr.DataArray) -> str:
    """Write how many of the trials a mask has."""
    return f"{int(mask.sum())} of {mask.size}"


def count_mflops(
    result: xr.Dataset, steps: int, place: int = 0, batch_size: int = 6, devices: int = 10
) -> float:
    """Count the operations of a device in a round of a result's method, in millions."""
    scenario = expand_points(result)[place].scenario
    model = models.build(scenario.model, (1, 28, 28), 10, scenario.loss)
    load = Workload(steps, batch_size, np.array([50_000.0 / devices]))
    return float(build_algorithm(scenario, model).count_flops(load)[0]) / 1e6


def draw_rounds(axis: Axes, values: xr.DataArray, label: str, place: int, line: str = "") -> None:
    """Draw the mean over trials against the round, in a band of one standard deviation."""
    style = {"color": COLOURS[place % len(COLOURS)], "ls": line or LINES[place % len(LINES)]}
    draw_band(axis, values["round"], values.transpose("round", "trial"), label=label, **style)


def draw_readings(
    cases: Sequence[tuple[str, Sequence[xr.Dataset]]], work: Sequence[float], path: Path
) -> None:
    """Draw Figs. 5 to 7.

    Parameters
    ----------
    cases : (name, its result in each reading)
    work : megaflops of a device in a round of 40 steps, by case
    """
    for (case, found), mflops in zip(cases, work, strict=True):
        cells = [f"{mflops:.1f}"]
        for one in found:
            last, local = int(one["final_round"]), one["local_test_accuracy"]
            cells.append(format_at_round(local, last))
        print_row(case, *cells)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.8), layout="constrained", sharey=True)
    for reading, (axis, name) in enumerate(zip(axes, READINGS, strict=True)):
        longest = max(int(found[reading]["final_round"]) for _, found in cases)
        for place, (case, found) in enumerate(cases):
            one = found[reading]
            local, last = one["local_test_accuracy"], int(one["final_round"])
            local = local.sel(round=slice(0, last))
            shape = {"color": COLOURS[place], "ls": LINES[place], "lw": 4 - 0.7 * place}
            draw_band(axis, local["round"], local, label=case, **shape)
        axis.set(title=f"{name}:\n{longest} rounds", xlabel="round", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy of local models, mean ± deviation")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=150)


def print_benchmark(results: Path, figures: Path) -> None:
    ds = open_result(results, "fedrlr_benchmark")
    rounds = (40, 75, 300)
    to_target = otafl.compute_cost_to_reach(ds, "test_accuracy", 0.7)["round"]
    columns = (*(f"{t} rounds" for t in rounds), "median rounds to 70 %", "trials that reach it")
    print_head("The benchmark", "pixels", *columns)
    for scale, name in (("raw", "0 to 255"), ("unit", "0 to 1")):
        accuracy = ds["test_accuracy"].sel(pixel_scale=scale)
        reached = to_target.sel(pixel_scale=scale)
        cells = (format_at_round(accuracy, t) for t in rounds)
        print_row(name, *cells, format_reached(reached)[0], format_share(reached.notnull()))


def draw_figures_5_to_7(results: Path, figures: Path) -> None:
    print_head("Figs. 5 to 7: local models", "case", "Mflop of 40 steps", *SHORT)
    ten_devices = open_result(results, "fedrlr_fig5_steps").sel(batch_size=6)
    ten_devices = ten_devices.sel(round=slice(0, 200)).assign_coords(final_round=200)
    for number, dim, name in ((5, "batch_size", "D_m = {}"), (6, "device_count", "K = {}")):
        ds, steps = (open_result(results, f"fedrlr_fig{number}{end}") for end in ("", "_steps"))
        values = ds[dim].values
        cases, work = [], []
        for value in values:
            at = {dim: value}
            more = steps.sel(at) if value in steps[dim] else ten_devices
            cases.append((name.format(value), [*(ds.isel(zip=i).sel(at) for i in (0, 1)), more]))
            size, count = (value, 10) if number == 5 else (6, value)
            work.append(count_mflops(ds, 40, 0, size, count))
        draw_readings(cases, work, figures / f"fedrlr_fig{number}.png")
    ds, steps = (open_result(results, f"fedrlr_fig7{end}") for end in ("", "_steps"))
    cases = [
        (name, [ds.isel(zip=j), ds.isel(zip=5 + j), steps.isel(zip=j)])
        for j, name in enumerate(WEIGHTS)
    ]
    work = [count_mflops(ds, 40)] * len(WEIGHTS)
    draw_readings(cases, work, figures / "fedrlr_fig7.png")


def draw_figure_8_and_table_2(results: Path, figures: Path) -> None:
    """Biases count for all: those that come free of error are digital, each device's its own."""
    ds = open_result(results, "fedrlr_fig8")
    reached = {
        v: otafl.compute_cost_to_reach(ds, v, 0.7) for v in ("test_accuracy", "local_test_accuracy")
    }
    aside = count_ideal_symbols(ds, BIASES)
    one_device = otafl.compute_symbols_per_round(ds).mean("trial") + aside
    print_head(
        "Fig. 8 and Table II",
        *("method", f"global, {NEAREST} rounds", f"local, {NEAREST} rounds", "Mflop a round"),
        *("symbols a round", "median rounds to 70 %", "trials of 10", "overhead", "paper's"),
    )
    for place, name in enumerate(METHODS):
        one = ds.isel(zip=place)
        symbols = float(one_device[place])
        evaluated = list_models(one)
        cells = [format_at_round(one[variable], NEAREST) for _, variable in evaluated]
        rounds = reached[evaluated[-1][1]]["round"].isel(zip=place)
        said, median = format_reached(rounds)
        overhead = f"{100 * median * symbols / BENCHMARK:.2f} %" if np.isfinite(median) else ""
        print_row(
            *(name, *cells, *[""] * (2 - len(cells))),
            f"{count_mflops(ds, int(one['local_steps']), place):,.1f}",
            *(f"{symbols:,.0f}", said, int(rounds.notnull().sum()), overhead),
            PAPER.get(place, ""),
        )
    draw_figure_8(ds, figures / "fedrlr_fig8.png")
    draw_symbols_and_accuracy(results, ds, one_device, figures / "fedrlr.png")


def draw_figure_8(ds: xr.Dataset, path: Path) -> None:
    """Draw the rivals, and the global and the local models of FedRLR beside the benchmark."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 6.2), layout="constrained", sharey=True)
    rivals = {0: METHODS[0], 7: METHODS[7], 12: METHODS[12], 9: METHODS[9], 11: METHODS[11]}
    rivals |= {8: "B2 l1 or B3 pruning, A 8 x 256", 13: "FedRLR+, one local step"}
    for turn, (place, name) in enumerate(rivals.items()):
        draw_rounds(axes[0], ds["test_accuracy"].isel(zip=place), name, turn)
    for axis, variable in zip(axes[1:], ("test_accuracy", "local_test_accuracy"), strict=True):
        draw_rounds(axis, ds["test_accuracy"].isel(zip=0), METHODS[0], 0)
        for turn, reading in enumerate(READINGS, 1):
            for power, line in (("GBMA", "-"), ("CI", "--")):
                one = ds[variable].isel(zip=2 * turn - (power == "GBMA"))
                draw_rounds(axis, one, f"{power}, {reading}", turn, line)
    titles = ("baselines, and FedRLR+", "FedRLR, global model", "FedRLR, local models")
    for axis, title in zip(axes, titles, strict=True):
        tidy(axis, title, ncols=1)
    axes[0].set_ylabel("test accuracy, mean ± deviation")
    figure.savefig(path, dpi=100)


def draw_symbols_and_accuracy(
    results: Path, ds: xr.Dataset, symbols: xr.DataArray, path: Path
) -> None:
    """Draw accuracies after 75 rounds against a device's symbols and operations of a round."""
    plus = open_result(results, "fedrlr_plus")
    best = otafl.select_tuned(plus, over="learning_rate").isel(zip=1)
    whole = open_result(results, "fedavg_equal_symbols")
    shown = [  # symbols, megaflops, accuracy [trial], marker, local steps
        (
            float(symbols[place]),
            count_mflops(ds, steps, place=place),
            ds[f"{model}test_accuracy"].isel(zip=place).sel(round=NEAREST),
            *(marker, steps),
        )
        for place, model, marker, steps in SHOWN
    ]
    accuracy = best["test_accuracy"].sel(round=75)
    shown.append((SYMBOLS, count_mflops(plus, 20), accuracy, "X", 20))
    accuracy = whole["test_accuracy"].sel(round=75)
    shown.append((float(symbols[0]), count_mflops(whole, 20), accuracy, "o", 20))
    figure, axes = plt.subplots(1, 2, figsize=(10, 5.6), layout="constrained", sharey=True)
    for one, mflops, accuracy, marker, steps in shown:
        style = {"marker": marker, "color": OF_STEPS[steps], "ms": 9, "capsize": 3}
        mean, deviation = float(accuracy.mean()), float(accuracy.std(ddof=1))
        for axis, at in zip(axes, (one, mflops), strict=True):
            axis.errorbar(at, mean, deviation, **style)
    for steps, colour in OF_STEPS.items():
        label = f"{steps} local step{'s' * (steps > 1)}{', tuned step size' * (steps == 20)}"
        axes[0].plot([], [], color=colour, lw=4, label=label)
    for marker, label in MARKED.items():
        axes[0].plot([], [], marker, color="0.4", ms=8, label=label)
    axes[0].set_xlabel("symbols a round, biases counted")
    axes[0].set_ylabel("accuracy after 74 or 75 rounds, ± deviation")
    axes[1].set_xlabel("local work a round and device, Mflop")
    for axis in axes:
        axis.axhline(0.7, color="0.5", lw=0.8, ls="--")
        axis.set(xscale="log", ylim=(0, 0.9))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=150)


def print_steps(results: Path, figures: Path) -> None:
    """Print accuracies after one local step a round, at the steps that are best in validation."""
    heads = (f"pixels to {end}: {one}" for end in (255, 1) for one in ("step", "global", "local"))
    print_head("One local step, error-free, 75 rounds, ten trials", "server", *heads)
    for arm, (file, place) in ARMS.items():
        try:
            ds = open_result(results, file).sel(round=75).isel(algorithm=place)
        except otafl.UserError:  # a sweep that has not been run
            continue
        cells = []
        for scale in ("raw", "unit"):
            here = ds.isel(zip=ds["pixel_scale"].values == scale)
            best = here.isel(zip=int(here["validation_accuracy"].mean("trial").argmax("zip")))
            step = float(best["q"]) / 1000 if "q" in best.coords else float(best["learning_rate"])
            local = best.get("local_test_accuracy")
            cells += [f"{step:g}", format_mean_std(best["test_accuracy"].values)]
            cells.append("" if local is None else format_mean_std(local.values))
        print_row(arm, *cells)


def print_global_model(results: Path, figures: Path) -> None:
    """Product errors are means over the recorded rounds, because single rounds scatter widely."""
    ds = open_result(results, "fedrlr_global_model")
    print_head(
        "The global model as written, K = 10",
        *("uplink", "c1", "product error", "its law (unit gains)"),
        *("global", "local", "error-free mean, rank 4"),
    )
    for place, uplink in enumerate(UPLINKS):
        for c1 in (0, 0.006, 0.06):
            one = ds.isel(zip=place).sel(device_count=10, c1=c1)
            errors = (one[name].mean("round") for name in ("product_error", "product_error_law"))
            cells = ("test_accuracy", "local_test_accuracy", "mean_test_accuracy")
            print_row(
                *(uplink, f"{c1:g}"),
                *(format_mean_std(e.values) for e in errors),
                *(format_mean_std(select_end_total(one, name).values) for name in cells),
            )
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for place, uplink in enumerate(UPLINKS):
        one = ds.isel(zip=place).sel(device_count=10, c1=0.006)
        error = one["product_error"]
        draw_rounds(left, error.cumsum("round") / error.notnull().cumsum("round"), uplink, place)
    draw_rounds(left, one["product_error_law"], "law, unit gains, no noise", 5)
    one = ds.isel(zip=1).sel(device_count=10, c1=0.006)
    draw_rounds(right, one["test_accuracy"], "global model (31)", 0)
    draw_rounds(right, one["local_test_accuracy"], "local models", 1)
    draw_rounds(right, one["mean_test_accuracy"], "error-free projected mean (20)", 2)
    tidy(right, "test accuracy ± deviation, GBMA, 25 dB, K = 10")
    left.set(title="squared error of the product over that of the mean", xlabel="round")
    left.set(ylim=(0, 4), ylabel="running mean ± deviation")
    left.grid(alpha=0.3)
    left.legend()
    figure.savefig(figures / "fedrlr_global_model.png", dpi=150)


def main() -> None:
    args = parse_study_arguments(__doc__)
    for part in (
        print_benchmark,
        draw_figures_5_to_7,
        draw_figure_8_and_table_2,
        print_steps,
        draw_figure_9,
        print_global_model,
    ):
        part(args.results, args.figures)


if __name__ == "__main__":
    command(main)
