"""Figures 5 to 9 and Table II of the FedRLR paper (Xue and Lau), and why its global model fails,
from the results of scenarios/papers/fedrlr_*.yaml. Fig. 10 is drawn by benchmarks/low_rank.py.

    for f in benchmark fig5 fig6 fig7 fig8 fig9 fig9_nuclear fig9_l1 global_model; do
      otafl sweep scenarios/papers/fedrlr_$f.yaml
    done
    python scripts/reproduce_fedrlr.py [results] [--figures results/reference]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from tables import head, opened, row

import otafl
from otafl.analysis.summary import spread
from otafl.plots import COLOURS, LINES, MARKERS
from otafl.results.ending import final

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
BENCHMARK = 75 * 268_800
"""The paper's 2.02e7 sub-carriers."""


def at(values: xr.DataArray, round: int) -> str:
    return spread(values.sel(round=round).values)


def band(axis: Axes, values: xr.DataArray, label: str, place: int) -> None:
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


def two_readings(
    title: str, cases: Sequence[tuple[str, Callable[[int], xr.Dataset]]], path: Path
) -> None:
    """Figs. 5 to 7. cases: name -> (reading) -> its result."""
    rounds = (75, 200, 1000)
    head(title, "reading", "case", *(f"local, {t} rounds" for t in rounds), "global, 1000 rounds")
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharey=True)
    for reading, axis in enumerate(axes):
        for place, (name, of) in enumerate(cases):
            one = of(reading)
            local = one["local_test_accuracy"]
            band(axis, local, name, place)
            told = (*(at(local, t) for t in rounds), at(one["test_accuracy"], 1000))
            row(READINGS[reading], name, *told)
        tidy(axis, READINGS[reading])
    axes[0].set_ylabel("test accuracy, mean of the local models")
    figure.savefig(path, dpi=150)


def benchmark(results: Path, figures: Path) -> None:
    ds = opened(results, "fedrlr_benchmark")
    rounds = (40, 75, 300)
    to_target = otafl.to_reach(ds, "test_accuracy", 0.7)["round"]
    head("The benchmark", "pixels", *(f"{t} rounds" for t in rounds), "rounds to 70 %")
    for scale, name in (("raw", "0 to 255"), ("unit", "0 to 1")):
        accuracy = ds["test_accuracy"].sel(pixel_scale=scale)
        reached = to_target.sel(pixel_scale=scale).values
        row(name, *(at(accuracy, t) for t in rounds), spread(reached))


def figures_5_to_7(results: Path, figures: Path) -> None:
    for number, dim, name in ((5, "batch_size", "D_m = {}"), (6, "device_count", "K = {}")):
        ds = opened(results, f"fedrlr_fig{number}")
        two_readings(
            f"Fig. {number}",
            [
                (name.format(value), lambda i, ds=ds, at={dim: value}: ds.isel(zip=i).sel(at))
                for value in ds[dim].values
            ],
            figures / f"fedrlr_fig{number}.png",
        )
    ds = opened(results, "fedrlr_fig7")
    names = ["c1 = 0.006", "c1 = 0.06", "c1 = 0.6", "mu = 3", "mu = 0.3"]
    cases = [(name, lambda i, j=j: ds.isel(zip=5 * i + j)) for j, name in enumerate(names)]
    two_readings("Fig. 7", cases, figures / "fedrlr_fig7.png")


def models_of(ds: xr.Dataset) -> list[tuple[str, str]]:
    """(what it is called, variable) of the models that a point evaluates."""
    both = [("global", "test_accuracy"), ("local", "local_test_accuracy")]
    return [(name, variable) for name, variable in both if ds[variable].notnull().any()]


def figure_8_and_table_2(results: Path, figures: Path) -> None:
    ds = opened(results, "fedrlr_fig8")
    reached = {v: otafl.to_reach(ds, v, 0.7) for v in ("test_accuracy", "local_test_accuracy")}
    per_round = otafl.symbols_per_round(ds)
    last = int(ds["round"].max())
    head(
        "Fig. 8 and Table II",
        *("method", "model", "accuracy, 75 rounds", f"{last} rounds", "symbols a round"),
        *("rounds to 70 %", "trials that reach it", "overhead, ours", "overhead, paper"),
    )
    figure, axes = plt.subplots(1, 2, figsize=(13, 7), layout="constrained", sharey=True)
    for place, name in enumerate(METHODS):
        one = ds.isel(zip=place)
        symbols = float(per_round.isel(zip=place).mean())
        for model, variable in models_of(one):
            rounds = reached[variable]["round"].isel(zip=place)
            there = int(rounds.notnull().sum())
            overhead = rounds * symbols / BENCHMARK
            row(
                *(name, model, at(one[variable], 74), at(one[variable], last), f"{symbols:,.0f}"),
                *(spread(rounds.values), f"{there} of {rounds.size}"),
                f"{100 * float(overhead.mean()):.2f} %" if there else "-",
                PAPER.get(place, ""),
            )
            band(axes[int(model == "local")], one[variable], name, place)
    tidy(axes[0], "global model")
    tidy(axes[1], "local models (mean over devices)")
    axes[0].set_ylabel("test accuracy")
    figure.savefig(figures / "fedrlr_fig8.png", dpi=150)


def figure_9(results: Path, figures: Path) -> None:
    """Against the compression 1 / factor; of B1 and B2 against what their weights really have."""
    ds = opened(results, "fedrlr_fig9")
    factors = (128, 64, 32, 16, 8)
    names = ("proposed 1 (GBMA)", "proposed 2 (CI)", "B3 pruning", "FedRLR+ (GBMA)")
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained", sharey=True)
    head("Fig. 9", "method", "model", *(f"1/{factor}" for factor in factors))
    for place, name in enumerate(names):
        points = ds.isel(zip=slice(place * len(factors), (place + 1) * len(factors)))
        for model, variable in models_of(points):
            accuracy = final(points, variable)
            row(name, model, *(spread(values) for values in accuracy.values))
            axes[0].errorbar(
                *([1 / factor for factor in factors], accuracy.mean("trial")),
                accuracy.std("trial", ddof=1),
                label=f"{name}, {model}",
                color=COLOURS[place],
                ls="--" if model == "local" else "-",
                marker=MARKERS[place],
                capsize=2,
            )
    head("Fig. 9, relaxed", "method", "weight of the norm", "accuracy", "rank, or density")
    nuclear = opened(results, "fedrlr_fig9_nuclear")
    l1 = opened(results, "fedrlr_fig9_l1")
    for place, (name, points, over, variable, whole) in enumerate(
        (
            ("B1 nuclear norm", nuclear, "nuclear_weight", "weight_rank", 256),
            ("B2 l1, A 32 x 256", l1.isel(zip=0), "l1_weight", "weight_density", 1),
            ("B2 l1, A 200 x 256", l1.isel(zip=1), "l1_weight", "weight_density", 1),
        )
    ):
        accuracy, size = final(points, "test_accuracy"), final(points, variable).mean("trial")
        for weight, trials, found in zip(points[over].values, accuracy, size.values, strict=True):
            row(name, f"{weight:g}", spread(trials.values), f"{found:.3g}")
        axes[1].errorbar(
            *(size / whole, accuracy.mean("trial"), accuracy.std("trial", ddof=1)),
            label=name,
            color=COLOURS[place],
            marker=MARKERS[place],
            capsize=2,
        )
    for axis, title in zip(axes, ("compressed by construction", "relaxed"), strict=True):
        axis.set_xscale("log")
        tidy(axis, title, "share of the weights, middle layer")
    axes[0].set_ylabel("test accuracy")
    figure.savefig(figures / "fedrlr_fig9.png", dpi=150)


def global_model(results: Path, figures: Path) -> None:
    """Product errors are means over the recorded rounds: single rounds scatter widely."""
    ds = opened(results, "fedrlr_global_model")
    head(
        "The global model as written",
        *("uplink", "K", "c1", "product error", "its law (unit gains)", "global", "local"),
        "error-free mean, rank 4",
    )
    uplinks = ("GBMA, 0 dB", "GBMA, 25 dB", "CI (tci), 25 dB")
    for place, uplink in enumerate(uplinks):
        for count in ds["device_count"].values:
            for c1 in ds["c1"].values:
                one = ds.isel(zip=place).sel(device_count=count, c1=c1)
                errors = (
                    one[name].mean("round") for name in ("product_error", "product_error_law")
                )
                told = ("test_accuracy", "local_test_accuracy", "mean_test_accuracy")
                row(
                    *(uplink, count, f"{c1:g}"),
                    *(spread(e.values) for e in errors),
                    *(spread(final(one, name).values) for name in told),
                )
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for place, uplink in enumerate(uplinks):
        one = ds.isel(zip=place).sel(device_count=10, c1=0.006)
        error = one["product_error"]
        band(left, error.cumsum("round") / error.notnull().cumsum("round"), uplink, place)
    band(left, one["product_error_law"], "law, unit gains, no noise", 5)
    one = ds.isel(zip=1).sel(device_count=10, c1=0.006)
    band(right, one["test_accuracy"], "global model (31)", 0)
    band(right, one["local_test_accuracy"], "local models", 1)
    band(right, one["mean_test_accuracy"], "error-free projected mean (20)", 2)
    tidy(right, "test accuracy, GBMA, 25 dB, K = 10")
    left.set(title="squared error of the product over that of the mean", xlabel="round")
    left.set(ylim=(0, 4), ylabel="running mean over the rounds")
    left.grid(alpha=0.3)
    left.legend()
    figure.savefig(figures / "fedrlr_global_model.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--figures", type=Path, default=Path("."), help="folder of the pictures")
    args = parser.parse_args()
    for part in (benchmark, figures_5_to_7, figure_8_and_table_2, figure_9, global_model):
        part(args.results, args.figures)


if __name__ == "__main__":
    main()
