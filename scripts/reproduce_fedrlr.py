"""Figures 5 to 9 and Table II of the FedRLR paper (Xue and Lau), and why its global model fails,
from the results of scenarios/papers/fedrlr_*.yaml. Fig. 10 is drawn by benchmarks/low_rank.py.

    for f in benchmark fig5 fig6 fig7 fig8 fig9 fig9_steps fig9_nuclear fig9_l1 global_model; do
      otafl sweep scenarios/papers/fedrlr_$f.yaml
    done
    python scripts/reproduce_fedrlr.py [results] [--figures results/reference]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import tables
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from tables import count_ideal_symbols, parse_study_arguments, print_head, print_row

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, LINES, MARKERS
from otafl.results.end_values import count_diverged, select_end_total

READINGS = ("as printed (1/K on loss and penalty)", "1/K on the penalty alone")
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
BIASES, DEVICES = 522, 10
SYMBOLS = 7_284
"""Of FedRLR+ of rank 4, whose biases are in its factors."""
BENCHMARK = 75 * (268_800 + BIASES)
"""The paper's 2.02e7 sub-carriers, to which biases make no difference."""
NEAREST = 74
"""Last evaluation of Fig. 8, of every second round, within the 75 rounds of Table II."""
FACTORS = (128, 64, 32, 16, 8)
"""The compression is 1 / factor."""
OF_ONE_RATIO = ("proposed 1 (GBMA)", "proposed 2 (CI)", "B3 pruning", "FedRLR+ (GBMA)")
"""Methods of Fig. 9 whose settings fix the ratio."""
MODEL_LINES = {"global": "-", "local": "--"}
UPLINKS = ("GBMA, 0 dB", "GBMA, 25 dB", "CI (tci), 25 dB")


def format_at_round(values: xr.DataArray, round: int) -> str:
    return format_mean_std(values.sel(round=round).values)


def draw_band(axis: Axes, values: xr.DataArray, label: str, place: int) -> None:
    """Mean over trials against the round, in a band of one standard deviation."""
    mean, deviation = values.mean("trial"), values.std("trial", ddof=1)
    colour = COLOURS[place % len(COLOURS)]
    axis.plot(
        mean["round"],
        mean,
        label=label,
        color=colour,
        ls=LINES[(place + 2 * (place // len(COLOURS))) % len(LINES)],
    )
    axis.fill_between(mean["round"], mean - deviation, mean + deviation, alpha=0.2, color=colour)


def tidy(axis: Axes, title: str, xlabel: str = "round") -> None:
    axis.set(title=title, xlabel=xlabel, ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)


def draw_two_readings(
    title: str, cases: Sequence[tuple[str, Callable[[int], xr.Dataset]]], path: Path
) -> None:
    """Figs. 5 to 7. cases: name -> (reading) -> its result."""
    rounds = (75, 200, 1000)
    print_head(
        title, "reading", "case", *(f"local, {t} rounds" for t in rounds), "global, 1000 rounds"
    )
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharey=True)
    for reading, axis in enumerate(axes):
        for place, (name, of) in enumerate(cases):
            one = of(reading)
            local = one["local_test_accuracy"]
            draw_band(axis, local, name, place)
            cells = (
                *(format_at_round(local, t) for t in rounds),
                format_at_round(one["test_accuracy"], 1000),
            )
            print_row(READINGS[reading], name, *cells)
        tidy(axis, READINGS[reading])
    axes[0].set_ylabel("test accuracy, mean of the local models")
    figure.savefig(path, dpi=150)


def print_benchmark(results: Path, figures: Path) -> None:
    ds = open_result(results, "fedrlr_benchmark")
    rounds = (40, 75, 300)
    to_target = otafl.compute_cost_to_reach(ds, "test_accuracy", 0.7)["round"]
    print_head("The benchmark", "pixels", *(f"{t} rounds" for t in rounds), "rounds to 70 %")
    for scale, name in (("raw", "0 to 255"), ("unit", "0 to 1")):
        accuracy = ds["test_accuracy"].sel(pixel_scale=scale)
        reached = to_target.sel(pixel_scale=scale).values
        print_row(name, *(format_at_round(accuracy, t) for t in rounds), format_mean_std(reached))


def draw_figures_5_to_7(results: Path, figures: Path) -> None:
    for number, dim, name in ((5, "batch_size", "D_m = {}"), (6, "device_count", "K = {}")):
        ds = open_result(results, f"fedrlr_fig{number}")
        draw_two_readings(
            f"Fig. {number}",
            [
                (name.format(value), lambda i, ds=ds, at={dim: value}: ds.isel(zip=i).sel(at))
                for value in ds[dim].values
            ],
            figures / f"fedrlr_fig{number}.png",
        )
    ds = open_result(results, "fedrlr_fig7")
    names = ["c1 = 0.006", "c1 = 0.06", "c1 = 0.6", "mu = 3", "mu = 0.3"]
    cases = [(name, lambda i, j=j: ds.isel(zip=5 * i + j)) for j, name in enumerate(names)]
    draw_two_readings("Fig. 7", cases, figures / "fedrlr_fig7.png")


def list_models(ds: xr.Dataset) -> list[tuple[str, str]]:
    """(what it is called, variable) of the models that a point evaluates."""
    both = [("global", "test_accuracy"), ("local", "local_test_accuracy")]
    return [(name, variable) for name, variable in both if ds[variable].notnull().any()]


def draw_figure_8_and_table_2(results: Path, figures: Path) -> None:
    """Biases count for all: those that come free of error are digital, each device's its own."""
    ds = open_result(results, "fedrlr_fig8")
    reached = {
        v: otafl.compute_cost_to_reach(ds, v, 0.7) for v in ("test_accuracy", "local_test_accuracy")
    }
    aside = count_ideal_symbols(ds, BIASES)
    one_device = otafl.compute_symbols_per_round(ds).mean("trial") + aside
    all_devices = otafl.compute_symbols_per_round(ds, "all").mean("trial") + DEVICES * aside
    last = int(ds["round"].max())
    print_head(
        "Fig. 8 and Table II",
        *("method", "model", f"accuracy, {NEAREST} rounds", f"{last} rounds", "symbols a round"),
        *("of ten devices", "rounds to 70 %", "trials that reach it", "overhead, ours"),
        "overhead, paper",
    )
    figure, axes = plt.subplots(1, 2, figsize=(13, 7), layout="constrained", sharey=True)
    for place, name in enumerate(METHODS):
        one = ds.isel(zip=place)
        symbols, of_all = float(one_device[place]), float(all_devices[place])
        for model, variable in list_models(one):
            rounds = reached[variable]["round"].isel(zip=place)
            there = int(rounds.notnull().sum())
            overhead = rounds * symbols / BENCHMARK
            print_row(
                *(
                    name,
                    model,
                    format_at_round(one[variable], NEAREST),
                    format_at_round(one[variable], last),
                    f"{symbols:,.0f}",
                ),
                *(f"{of_all:,.0f}", format_mean_std(rounds.values), f"{there} of {rounds.size}"),
                f"{100 * float(overhead.mean()):.2f} %" if there else "-",
                PAPER.get(place, ""),
            )
            draw_band(axes[int(model == "local")], one[variable], name, place)
    tidy(axes[0], "global model")
    tidy(axes[1], "local models (mean over devices)")
    axes[0].set_ylabel("test accuracy")
    figure.savefig(figures / "fedrlr_fig8.png", dpi=150)
    draw_symbols_and_accuracy(results, ds, one_device, figures / "fedrlr.png")


def draw_symbols_and_accuracy(
    results: Path, ds: xr.Dataset, symbols: xr.DataArray, path: Path
) -> None:
    """Draw what methods reach in 75 rounds against the symbols of one of them."""
    plus = otafl.select_tuned(open_result(results, "fedrlr_plus"), over="learning_rate").isel(zip=1)
    plus = plus["test_accuracy"].sel(round=75)
    whole = open_result(results, "fedavg_equal_symbols")["test_accuracy"].sel(round=75)
    shown = (  # place in METHODS, model, colour, marker, what it is called, offset of its name
        (0, "", 0, "o", "benchmark: digital FedAvg", (-8, -17)),
        (7, "", 0, "s", "B1 nuclear norm, B4 8 bits", (-8, 20)),
        (8, "", 3, "v", "B2, B3 with 8 rows", (9, -4)),
        (11, "", 3, "^", "B3 pruning, 200 rows", (-8, 9)),
        (1, "", 1, "D", "FedRLR as printed, global model", (-9, -13)),
        (1, "local_", 2, "D", "FedRLR as printed, local models", (-9, 3)),
        (5, "", 1, "P", "FedRLR, 40 steps, global model", (-9, 3)),
        (5, "local_", 2, "P", "FedRLR, 40 steps, local models", (-9, -4)),
        (13, "", 4, "X", "FedRLR+, the paper's constants", (-9, 2)),
    )
    figure, axis = plt.subplots(figsize=(9.5, 5.5), layout="constrained")
    points = [
        (
            float(symbols[place]),
            ds[f"{model}test_accuracy"].isel(zip=place).sel(round=NEAREST),
            *how,
        )
        for place, model, *how in shown
    ]
    points += [
        (SYMBOLS, plus, 4, "*", "FedRLR+, 20 steps, tuned step", (-10, -2)),
        (float(symbols[0]), whole, 0, "*", "digital FedAvg, 20 steps, tuned step", (-8, 7)),
    ]
    for where, accuracy, colour, marker, name, offset in points:
        mean, deviation = float(accuracy.mean()), float(accuracy.std(ddof=1))
        style = {"marker": marker, "color": COLOURS[colour], "ms": 9, "capsize": 3}
        axis.errorbar(where, mean, deviation, **style)
        side = "left" if offset[0] > 0 else "right"
        axis.annotate(name, (where, mean), offset, textcoords="offset points", ha=side)
    axis.axhline(0.7, color="0.5", lw=0.8, ls="--")
    axis.set(xscale="log", xlim=(700, 400_000), ylim=(0, 0.9))
    axis.set(xlabel="symbols a round, biases counted", ylabel="test accuracy after 74 or 75 rounds")
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def draw_figure_9(results: Path, figures: Path) -> None:
    """Against the compression 1 / factor; the relaxed methods where they meet it."""
    ds = open_result(results, "fedrlr_fig9")
    names = OF_ONE_RATIO
    figure, axis = plt.subplots(figsize=(9.5, 6), layout="constrained")
    print_head("Fig. 9", "method", "model", *(f"1/{factor}" for factor in FACTORS))
    for place, name in enumerate(names):
        points = ds.isel(zip=slice(place * len(FACTORS), (place + 1) * len(FACTORS)))
        for model, variable in list_models(points):
            accuracy = select_end_total(points, variable)
            print_row(name, model, *(format_mean_std(values) for values in accuracy.values))
            draw_by_ratio(axis, list(accuracy), f"{name}, {model}", place, MODEL_LINES[model])
    relaxed = (
        ("B1 nuclear norm", tune_nuclear_norm(results)),
        ("B2 l1 norm", tune_l1_norm(results)),
    )
    for place, (name, found) in enumerate(relaxed, len(names)):
        met = [one["test_accuracy"] for one in found]
        print_row(name, "global", *(format_mean_std(one.values) for one in met))
        draw_by_ratio(axis, met, f"{name}, tuned to the ratio", place, "-.")
    place = len(names) + len(relaxed)
    points = open_result(results, "fedrlr_fig9_steps").sel(rank=[128 // f for f in FACTORS])
    for model, variable in list_models(points):
        accuracy = select_end_total(points, variable).transpose("rank", "trial")
        name = "proposed 1 (GBMA), 40 local steps"
        print_row(name, model, *(format_mean_std(values) for values in accuracy.values))
        draw_by_ratio(axis, list(accuracy), f"{name}, {model}", place, MODEL_LINES[model])
    print_head(
        "Fig. 9, relaxed",
        *("method", "ratio", "trials that meet it", "weight", "rounds", "rank, or density"),
    )
    for (name, found), weight in zip(relaxed, ("nuclear_weight", "l1_weight"), strict=True):
        for factor, one in zip(FACTORS, found, strict=True):
            print_row(name, f"1/{factor}", *format_row(one, weight))
    print_intermediate(results)
    axis.set_xscale("log")
    axis.set_xticks([1 / f for f in FACTORS], [f"1/{f}" for f in FACTORS])
    axis.minorticks_off()
    axis.axhline(0.8, color="0.5", lw=0.8, ls="--", label="the paper's: above this everywhere")
    tidy(axis, "accuracy where a method meets the compression", "share of the weights")
    axis.set_ylabel("test accuracy")
    figure.savefig(figures / "fedrlr_fig9.png", dpi=150)


def print_intermediate(results: Path) -> None:
    """What B1 has while its rank falls, and B2 at the end by its weight, with the most rows."""
    print_head("Relaxed", "method", "weight", "rounds", "accuracy", "rank, or density")
    nuclear = open_result(results, "fedrlr_fig9_nuclear").isel(nuclear_weight=0)
    for t in (25, 50, 75, 100, 125, 150, 175):
        cells = (format_at_round(nuclear[name], t) for name in ("test_accuracy", "weight_rank"))
        print_row("B1 nuclear norm", f"{float(nuclear['nuclear_weight']):g}", t, *cells)
    l1 = open_result(results, "fedrlr_fig9_l1")
    for place in range(len(FACTORS) - 1, l1.sizes["zip"]):
        one = l1.isel(zip=place)
        cells = (
            format_mean_std(select_end_total(one, name).values)
            for name in ("test_accuracy", "weight_density")
        )
        weight, rounds = float(one["l1_weight"]), int(one["final_round"])
        print_row("B2 l1 norm, A 32 x 256", f"{weight:g}", rounds, *cells)


def format_row(one: xr.Dataset, weight: str) -> tuple[str, ...]:
    rounds = one["at"].dropna("trial").values
    there = f"{rounds.size} of {one.sizes['trial']}"
    if not rounds.size:
        return there, "-", "-", "-"
    span = f"{min(rounds):g} to {max(rounds):g}"
    return (
        there,
        f"{float(one[weight]):g}",
        span,
        format_mean_std(one["size"].dropna("trial").values),
    )


def draw_by_ratio(
    axis: Axes, found: Sequence[xr.DataArray], label: str, place: int, line: str
) -> None:
    """Draw accuracies [trial] by ratio."""
    axis.errorbar(
        [1 / factor for factor in FACTORS],
        [float(one.mean()) for one in found],
        [float(one.std(ddof=1)) for one in found],
        label=label,
        color=COLOURS[place],
        ls=line,
        marker=MARKERS[place],
        capsize=2,
    )


def select_tuned(ds: xr.Dataset, weight: str, size: str, limit: float) -> xr.Dataset:
    """Take the best round of each trial by validation accuracy whose rank or density is within the
    limit, and the weight with which most trials have one, of several the best by that accuracy.

    A trial without such a round counts as its untrained model, and its round and size are NaN.
    """
    ds = ds.assign(size=ds[size], at=ds["round"].broadcast_like(ds[size]))
    eligible_mask = ds["validation_accuracy"].where(ds["size"] <= limit).fillna(-1.0)
    taken = ds.isel(round=eligible_mask.argmax("round")).where(eligible_mask.max("round") >= 0)
    accuracy = taken["validation_accuracy"]
    score = accuracy.notnull().sum("trial") + accuracy.mean("trial").fillna(0.0)
    guess = ds["test_accuracy"].sel(round=0, drop=True)
    taken["test_accuracy"] = taken["test_accuracy"].fillna(guess)
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


def open_result(results: Path, name: str) -> xr.Dataset:
    """Open the result of a scenario; a trial that diverged counts as a guess to the last round.

    A stack of only diverged trials ends early, where `count_diverged` ends too.
    """
    ds = count_diverged(tables.open_result(results, name))
    if "diverged_round" not in ds:
        return ds
    lost = ds["diverged_round"] <= ds["round"]
    scores = [name for name in ds.data_vars if str(name).endswith("test_accuracy")]
    filled = {
        n: ds[n].where(~lost | ds[n].notnull(), ds[n].sel(round=0, drop=True)) for n in scores
    }
    return ds.assign({n: values.transpose(*ds[n].dims) for n, values in filled.items()})


def print_diverged(results: Path, figures: Path) -> None:
    """Count the trials that the other tables contain as their untrained model."""
    print_head("Trials that diverged", "experiment", "case", "diverged")
    weights = ("c1 = 0.006", "c1 = 0.06", "c1 = 0.6", "mu = 3", "mu = 0.3")
    cases = {
        "fig7": [f"{weight}, {reading}" for reading in READINGS for weight in weights],
        "fig8": list(METHODS),
        "fig9": [f"{name}, 1/{factor}" for name in OF_ONE_RATIO for factor in FACTORS],
        "fig9_steps": [f"40 local steps, 1/{factor}" for factor in reversed(FACTORS)],
        "global_model": [
            f"{uplink}, K = {count}, c1 = {c1:g}"
            for uplink in UPLINKS
            for count in (5, 10, 20)
            for c1 in (0, 0.006, 0.06, 0.6)
        ],
    }
    for name, labels in cases.items():
        diverged = tables.open_result(results, f"fedrlr_{name}")["diverged_round"].notnull()
        first = [dim for dim in ("zip", "device_count", "c1", "rank") if dim in diverged.dims]
        lost = diverged.sum("trial").transpose(*first).values.ravel()
        for label, count in zip(labels, lost, strict=True):
            if count:
                print_row(
                    name.replace("fig", "Fig. "), label, f"{count} of {diverged.sizes['trial']}"
                )


def print_global_model(results: Path, figures: Path) -> None:
    """Product errors are means over the recorded rounds: single rounds scatter widely."""
    ds = open_result(results, "fedrlr_global_model")
    print_head(
        "The global model as written",
        *("uplink", "K", "c1", "product error", "its law (unit gains)", "global", "local"),
        "error-free mean, rank 4",
    )
    for place, uplink in enumerate(UPLINKS):
        for count in ds["device_count"].values:
            for c1 in ds["c1"].values:
                one = ds.isel(zip=place).sel(device_count=count, c1=c1)
                errors = (
                    one[name].mean("round") for name in ("product_error", "product_error_law")
                )
                cells = ("test_accuracy", "local_test_accuracy", "mean_test_accuracy")
                print_row(
                    *(uplink, count, f"{c1:g}"),
                    *(format_mean_std(e.values) for e in errors),
                    *(format_mean_std(select_end_total(one, name).values) for name in cells),
                )
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for place, uplink in enumerate(UPLINKS):
        one = ds.isel(zip=place).sel(device_count=10, c1=0.006)
        error = one["product_error"]
        draw_band(left, error.cumsum("round") / error.notnull().cumsum("round"), uplink, place)
    draw_band(left, one["product_error_law"], "law, unit gains, no noise", 5)
    one = ds.isel(zip=1).sel(device_count=10, c1=0.006)
    draw_band(right, one["test_accuracy"], "global model (31)", 0)
    draw_band(right, one["local_test_accuracy"], "local models", 1)
    draw_band(right, one["mean_test_accuracy"], "error-free projected mean (20)", 2)
    tidy(right, "test accuracy, GBMA, 25 dB, K = 10")
    left.set(title="squared error of the product over that of the mean", xlabel="round")
    left.set(ylim=(0, 4), ylabel="running mean over the rounds")
    left.grid(alpha=0.3)
    left.legend()
    figure.savefig(figures / "fedrlr_global_model.png", dpi=150)


def main() -> None:
    args = parse_study_arguments(__doc__)
    for part in (
        print_benchmark,
        draw_figures_5_to_7,
        draw_figure_8_and_table_2,
        draw_figure_9,
        print_global_model,
        print_diverged,
    ):
        part(args.results, args.figures)


if __name__ == "__main__":
    main()
