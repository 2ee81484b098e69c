r"""FedRLR+ beside the paper's scheme, error-free averaging of the same payload, and digital FedAvg:
accuracy of the global model over SNR and devices, each at its best step size on validation data.

    for s in fedrlr_plus fedrlr_plus_momentum fedrlr_plus_policies fedrlr_plus_ablation \
        fedrlr_plus_grid fedrlr_plus_low_snr fedrlr_grid \
        fedrlr_references_grid fedavg_equal_symbols fedrlr_rivals fedrlr_rivals_momentum_grid \
        fedrlr_rivals_steps fedrlr_rivals_small_steps fedrlr_rivals_tuned fedrlr_cnn; do
      otafl sweep studies/fedrlr/$s.yaml
    done
    python -m studies.fedrlr.fedrlr_plus [results] [--figure fedrlr_plus.png]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import xarray as xr
from matplotlib import pyplot as plt

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.plots import COLOURS, MARKERS
from otafl.results.end_values import select_final
from studies.common.looks import draw_errorbars
from studies.common.tables import (
    command,
    count_ideal_symbols,
    format_points,
    interpolate_at_cost,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

SYMBOLS, WHOLE = 7_284, 269_322
"""Real numbers that a device sends a round: FedRLR+ of rank 4, FedAvg; with all biases."""
BIASES_OF_CNN, DEVICES = 186, 10
BETA = 0.8
"""The momentum."""
RIVALS = {
    "shared_subset": "the same random reals",
    "compressed_sensing": "compressed sensing",
    "topk(keep=0.00033": "top-k in packets",
    "topk(keep=0.027046": "top-k, error-free",
    "identity": "the whole model, error-free",
}
"""Beginning of a codec's label -> name of FedAvg with it."""


def find_best(results: Path, name: str, over: str = "learning_rate") -> xr.Dataset:
    return otafl.select_tuned(open_result(results, name), over=over)


def read_best_end(results: Path, name: str, over: str = "learning_rate") -> xr.DataArray:
    """Read the accuracy at the end of the best step."""
    return read_end(find_best(results, name, over), "test_accuracy")


def print_long_runs(results: Path) -> None:
    """1000 rounds at K = 10, and FedAvg at equal symbols and at equal rounds."""
    plus = find_best(results, "fedrlr_plus")
    fedavg = open_result(results, "fedavg_equal_symbols")["test_accuracy"]
    rounds = (75, 200, 1000)
    trials = plus.sizes["trial"]
    print_head(f"K = 10, {trials} trials", "method", "step", *(f"{t} rounds" for t in rounds))
    for place, name in enumerate(("FedRLR+, 0 dB", "FedRLR+, 25 dB", "same payload, error-free")):
        one = plus.isel(zip=place)
        cells = (format_mean_std(one["test_accuracy"].sel(round=t).values) for t in rounds)
        print_row(name, f"{float(one['learning_rate']):g}", *cells)
    done = [t if t in fedavg["round"] else None for t in rounds]
    work = ["" if t is None else format_mean_std(fedavg.sel(round=t).values) for t in done]
    print_row(f"FedAvg, equal work ({fedavg.sizes['trial']} trials)", "0.1", *work)
    for name, factor in (("one device's", 1), ("ten devices'", 10)):
        equal = [t * SYMBOLS // (factor * WHOLE) for t in rounds]
        cells = (f"{format_mean_std(fedavg.sel(round=t).values)} ({t} rounds)" for t in equal)
        print_row(f"FedAvg, {name} symbols", "0.1", *cells)


def name_rival(codec: str) -> str:
    return next(name for start, name in RIVALS.items() if codec.startswith(start))


def print_momentum(results: Path) -> None:
    """Compare FedRLR+ with the server's momentum and without, K = 10, 25 dB, trial by trial."""
    plus = find_best(results, "fedrlr_plus").isel(zip=1)["test_accuracy"].sel(round=75, drop=True)
    ds = open_result(results, "fedrlr_plus_momentum")
    steps = ("learning_rate", "server_learning_rate")
    points = ds.stack(point=steps)
    score = read_end(points, "validation_accuracy").mean("trial")
    place = int(score.argmax("point"))
    accuracy = read_end(points, "test_accuracy")
    print_head(
        f"Momentum: 75 rounds at 25 dB, {ds.sizes['trial']} trials",
        *("momentum", "device's step", "server's step", "accuracy", "points above 0.8 (95 %)"),
    )
    print_row("0.8", "0.1", "1", format_mean_std(plus.values), "")
    for i in (list(points.indexes["point"]).index((0.1, 1.0)), place):
        of_device, of_server = points.indexes["point"][i]
        one = accuracy.isel(point=i).drop_vars(("point", *steps))
        cells = f"{of_device:g}", f"{of_server:g}", format_mean_std(one.values)
        print_row("0", *cells, format_points(one, plus))


def print_ablation(results: Path) -> None:
    """Compare ranks and local steps with rank 4 and 20 steps, K = 10, 25 dB, trial by trial."""
    ds = open_result(results, "fedrlr_plus_ablation")
    best = otafl.select_tuned(ds, over="learning_rate")
    accuracy = read_end(best, "test_accuracy")
    symbols = read_end(ds, "uplink_symbols").max(("learning_rate", "trial")) / int(ds["round"][-1])
    kept = accuracy.isel(zip=0)
    print_head(
        f"Rank and local steps: 75 rounds at 25 dB, {ds.sizes['trial']} trials",
        *("rank", "local steps", "symbols a round", "device's step", "accuracy"),
        "points above rank 4, 20 steps (95 %)",
    )
    for i in range(accuracy.sizes["zip"]):
        one = accuracy.isel(zip=i)
        print_row(
            int(one["rank"]),
            int(one["local_steps"]),
            f"{float(symbols[i]):,.0f}",
            f"{float(best['learning_rate'][i]):g}",
            format_mean_std(one.values),
            format_points(one, kept) if i else "",
        )


def print_rivals(results: Path) -> None:
    """FedAvg at the symbols of FedRLR+, K = 10, 25 dB; differences trial by trial."""
    plus = find_best(results, "fedrlr_plus").isel(zip=1)["test_accuracy"].sel(round=75, drop=True)
    found = read_rivals(results)
    print_head(
        f"75 rounds of {SYMBOLS:,} symbols, {plus.sizes['trial']} trials",
        *("FedAvg with", "momentum", "device's step", "server's step", "accuracy"),
        "points above FedRLR+ (95 %)",
    )
    order = list(RIVALS.values()).index
    for (name, beta), (*steps, accuracy) in sorted(found.items(), key=lambda f: order(f[0][0])):
        cells = *(f"{s:g}" for s in steps), format_mean_std(accuracy.values)
        print_row(name, f"{beta:g}", *cells, format_points(accuracy, plus))
    print_row("FedRLR+", f"{BETA:g}", "0.1", "1", format_mean_std(plus.values), "")


def read_rivals(results: Path) -> dict[tuple[str, float], tuple[float, float, xr.DataArray]]:
    """Read steps and accuracy [trial] by rival and momentum.

    The accuracy is read where 75 rounds of FedRLR+'s symbols are spent, and without errors after
    75 rounds.
    """
    whole = open_result(results, "fedrlr_references_grid").sel(algorithm="fedavg", device_count=10)
    whole = otafl.select_tuned(whole, over="learning_rate")
    of_whole = float(whole["learning_rate"]), 1.0, select_final(whole, "test_accuracy")
    found = {(RIVALS["identity"], 0.0): of_whole}
    for file in ("fedrlr_rivals", "fedrlr_rivals_tuned"):
        ds = open_result(results, file)
        spent = ds["uplink_symbols"].where(ds["transport"] != "ideal", ds["round"] * SYMBOLS)
        accuracy = interpolate_at_cost(ds, "test_accuracy", spent, xr.DataArray(75 * SYMBOLS))
        for one in accuracy.transpose("zip", ...):
            of = name_rival(str(one["codec"].values)), read_momentum(one)
            found[of] = *read_steps(one), one
    return found


def read_momentum(point: xr.DataArray) -> float:
    return BETA if "momentum" in str(point.coords.get("server", "")) else 0.0


def read_steps(point: xr.DataArray) -> tuple[float, float]:
    """Return the steps of the devices and of the server, which is 1 if it is no coordinate."""
    return (
        float(point.coords.get("learning_rate", 0.1)),
        float(point.coords.get("server_learning_rate", 1.0)),
    )


def print_searches(results: Path) -> None:
    """Print what momentum gives to the rivals, each at the best of the steps that were searched."""
    found: dict[tuple[str, float], dict[tuple[float, float], xr.DataArray]] = {}
    for name, beta, steps, accuracy in list_searches(results):
        found.setdefault((name, beta), {})[steps] = accuracy
    best = {
        row: max(searched, key=lambda steps: float(searched[steps].mean()))
        for row, searched in found.items()
    }
    print_head(
        "Momentum of the rivals: validation accuracy at the best steps, three trials",
        *("FedAvg with", "without", f"with {BETA:g}", "points gained (95 %)"),
    )
    for name in RIVALS.values():
        ends = [found[name, beta][best[name, beta]] for beta in (0.0, BETA)]
        gain = format_points(ends[1], ends[0])
        print_row(name, *(format_mean_std(one.values) for one in ends), gain)


def list_searches(
    results: Path,
) -> Iterator[tuple[str, float, tuple[float, float], xr.DataArray]]:
    """Yield method, momentum, steps of the devices and the server, validation accuracy [trial].

    Three trials of each rival.
    """
    files: dict[str, tuple[str, float | None]] = {
        "fedrlr_rivals": ("", 0.0),
        "fedrlr_references_grid": (RIVALS["identity"], 0.0),
        "fedrlr_rivals_momentum_grid": ("", BETA),
        "fedrlr_rivals_steps": ("", None),
        "fedrlr_rivals_small_steps": ("", None),
    }
    for file, (name, beta) in files.items():
        ds = open_result(results, file).isel(trial=slice(3))
        if "device_count" in ds.dims:
            ds = ds.sel(algorithm="fedavg", device_count=10)
        accuracy = read_end(ds, "validation_accuracy")
        points = accuracy.stack(point=[dim for dim in accuracy.dims if dim != "trial"])
        for one in points.transpose("point", "trial"):
            method = name or name_rival(str(one["codec"].values))
            steps = read_steps(one)
            values = xr.DataArray(one.values, dims="trial")
            yield method, read_momentum(one) if beta is None else beta, steps, values


def print_policies(results: Path) -> None:
    """75 rounds at K = 10, and the difference to the error-free mean, trial by trial: same data,
    starts, minibatches and channels.
    """
    ds = open_result(results, "fedrlr_plus_policies")
    accuracy, nmse = (
        select_final(ds, "test_accuracy"),
        ds["aggregation_nmse"].mean(("trial", "round")),
    )
    off = 100 * (accuracy - accuracy.isel(zip=-1))
    error = off.std("trial", ddof=1) / off.sizes["trial"] ** 0.5
    columns = ("power", "SNR", "NMSE", "points above error-free ± standard error")
    print_head(f"Policies: 75 rounds, {off.sizes['trial']} trials", *columns)
    for place, power in enumerate(ds["power"].values[:-1]):
        cells = f"{float(off[place].mean()):+.2f} ± {float(error[place]):.2f}"
        snr = f"{float(ds['snr_db'][place]):g} dB"
        print_row(power, snr, f"{float(nmse[place]):.3f}", cells)


def print_convolutions(results: Path) -> None:
    ds = open_result(results, "fedrlr_cnn")
    print_head(
        f"A convolutional network, ranks 8, 8, 4, 4 of four layers, {ds.sizes['trial']} trials",
        *("method", "symbols a round", "of ten devices", "model"),
        *(f"{t} rounds" for t in (20, 40, 60)),
    )
    shared, aside = (
        otafl.compute_symbols_per_round(ds).mean("trial"),
        count_ideal_symbols(ds, BIASES_OF_CNN),
    )
    symbols = [f"{count:,.0f}" for count in (shared + aside).values]
    of_all = [f"{count:,.0f}" for count in (shared + DEVICES * aside).values]
    for place, name, variable in (
        (0, "FedRLR, global (31)", "test_accuracy"),
        (0, "FedRLR, local", "local_test_accuracy"),
        (1, "FedRLR+, global", "test_accuracy"),
    ):
        method, model = name.split(", ")
        cells = (
            format_mean_std(ds[variable].isel(zip=place).sel(round=t).values) for t in (20, 40, 60)
        )
        print_row(method, symbols[place], of_all[place], model, *cells)


def draw_grids(results: Path, figure: Path) -> None:
    """75 rounds over SNR and K."""
    plus = read_best_end(results, "fedrlr_plus_grid")
    low = read_best_end(results, "fedrlr_plus_low_snr")
    plus = xr.concat([low, plus], "snr_db", join="outer", coords="minimal", compat="override")
    paper = read_best_end(results, "fedrlr_grid", over="q")
    bounds = read_best_end(results, "fedrlr_references_grid")
    plus = plus.astype("float64").round(6)  # stored in single precision
    counts, snrs = plus["device_count"].values, plus["snr_db"].values
    assert plus.sizes["trial"] == paper.sizes["trial"]
    trials = f"75 rounds, {plus.sizes['trial']} trials"
    shown = [-50.0, -40.0, -30.0, -20.0, 0.0, 30.0]
    print_head(trials, "method", "K", *(f"{snr:g} dB" for snr in shown))
    for name, accuracy in (("FedRLR+", plus), ("FedRLR (31)", paper)):
        for count in counts:
            of = accuracy.sel(device_count=count).reindex(snr_db=snrs)
            there = [of.sel(snr_db=snr) for snr in shown]
            cells = ("" if one.isnull().all() else format_mean_std(one.values) for one in there)
            print_row(name, count, *cells)
    free = f"75 rounds, free of error, {bounds.sizes['trial']} trials"
    print_head(free, "K", "same payload as FedRLR+", "FedAvg, whole model")
    for count in counts:
        of = bounds.sel(device_count=count)
        print_row(
            count, *(format_mean_std(of.sel(algorithm=a).values) for a in ("fedrlr_plus", "fedavg"))
        )
    draw_grid(plus, paper, bounds, figure)


def draw_grid(plus: xr.DataArray, paper: xr.DataArray, bounds: xr.DataArray, figure: Path) -> None:
    """Draw accuracy over SNR: at all levels, and where FedRLR+ is near the error-free mean."""
    _, axes = plt.subplots(1, 2, figsize=(11, 5.4), layout="constrained")
    for accuracy, name, line in ((plus, "FedRLR+", "-"), (paper, "FedRLR", ":")):
        for place, count in enumerate(accuracy["device_count"].values):
            of = accuracy.sel(device_count=count).dropna("snr_db", how="all")
            style = {"color": COLOURS[place], "marker": MARKERS[place], "ls": line}
            style |= {"label": f"{name}, K = {count}"}
            at = of["snr_db"].values + 0.6 * (place - 2)
            for axis in axes[: 1 + (name == "FedRLR+")]:
                draw_errorbars(axis, at, of.transpose("snr_db", "trial"), **style)
    for method, name, line in (
        ("fedrlr_plus", "payload of FedRLR+", "--"),
        ("fedavg", "FedAvg, whole model", "-."),
    ):
        level = float(bounds.sel(algorithm=method, device_count=10).mean())
        for axis in axes:
            axis.axhline(level, color="k", ls=line, lw=1, label=f"{name}, error-free, K = 10")
    axes[0].set(ylim=(0, 1), ylabel="test accuracy of the global model, mean ± deviation")
    axes[1].set(xlim=(-32, 32), ylim=(0.72, 0.84), title="from -30 dB, enlarged")
    for axis in axes:
        axis.set_xlabel("SNR (dB)")
        axis.grid(alpha=0.3)
    handles = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(*handles, loc="outside lower center", ncols=4, fontsize="small")
    plt.savefig(figure, dpi=150)


def main() -> None:
    args = parse_study_arguments(__doc__, "fedrlr_plus.png")
    print_long_runs(args.results)
    print_rivals(args.results)
    print_momentum(args.results)
    print_ablation(args.results)
    print_searches(args.results)
    print_policies(args.results)
    print_convolutions(args.results)
    draw_grids(args.results, args.figure)


if __name__ == "__main__":
    command(main)
