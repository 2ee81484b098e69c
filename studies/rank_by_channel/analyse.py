"""Rank power policies on each channel, by accuracy at the server's step that is best on validation
data, and by aggregation error; differences are paired, trial by trial.

    otafl sweep studies/rank_by_channel/rank_by_channel.yaml
    otafl sweep studies/rank_by_channel/cell_snr.yaml
    python -m studies.rank_by_channel.analyse [results] [--figure rank_by_channel.png]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import yaml
from matplotlib import pyplot as plt
from scipy import stats

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import select_final
from studies.common.looks import TYPE, compute_half_interval, get_policy_style
from studies.common.tables import (
    classify_budgets,
    command,
    compute_gain,
    count_guesses,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

RESAMPLES = 2000
NAMES = {"rayleigh": "Rayleigh", "cdl-b": "CDL-B", "umi": "UMi"}
SMALL: dict[str, Any] = {
    "data": "digits",
    "model": "softmax_regression",
    "power": "full",
    "training": {"rounds": 10, "eval_every": 10},
    "output": {"save_link": True},
}
"""What is changed in the study to see its channels alone: the same places, the same first fades."""


def shorten(label: str) -> str:
    """A channel's name, or the place of a trace."""
    name, _, keys = label.partition("(")
    place = dict(part.split("=") for part in keys.rstrip(")").split(", ") if "=" in part)
    return place["scene"].capitalize() if "scene" in place else NAMES[name]


def tell_gains(scenario: dict[str, Any]) -> None:
    """How unequal devices are: their mean |h|^2 over ten rounds, where the mean of all is 0 dB."""
    ds = otafl.run(scenario | SMALL | {"sweep": {"channel": scenario["sweep"]["channel"]}})
    gain = ds["link_h_0_real"] ** 2 + ds["link_h_0_imag"] ** 2
    rest = [dim for dim in gain.dims if dim not in {"channel", "trial", "device"}]
    each = gain.mean(rest).stack(one=("trial", "device")).transpose("channel", "one").values
    print_head(
        "Mean gains of single devices, dB", "", *(shorten(str(c)) for c in ds["channel"].values)
    )
    with np.errstate(divide="ignore"):
        levels = 10 * np.log10(np.quantile(each, [0.1, 0.5, 0.9], axis=1))
    said = ("a tenth is below", "half is below", "a tenth is above")
    for name, values in zip(said, levels, strict=True):
        print_row(name, *("no path" if np.isinf(one) else f"{one:.0f}" for one in values))
    print_row("without a path", *(f"{100 * share:.0f} %" for share in (each == 0).mean(1)))


def order(values: np.ndarray) -> np.ndarray:
    """Ranks [channel, power], 1 for the least."""
    ranks: np.ndarray = stats.rankdata(values, axis=1, method="min").astype(int)
    return ranks


def main() -> None:
    args = parse_study_arguments(__doc__, "rank_by_channel.png")
    result = open_result(args.results, "rank_by_channel")
    best = otafl.select_tuned(result, over="server_learning_rate").transpose(
        "channel", "power", ...
    )
    accuracy = read_end(best, "test_accuracy")
    error = select_final(best, "aggregation_nmse").median("trial").values
    names = [shorten(str(label)) for label in best["channel"].values]
    powers = [str(label) for label in best["power"].values]
    budget = classify_budgets(result)
    peak = [k for k, name in enumerate(powers) if budget[name] == "peak"]
    means = accuracy.mean("trial").values
    ranks = {"accuracy": order(-means[:, peak]), "error": order(error[:, peak])}
    trials = best.sizes["trial"]
    row = {
        f"Accuracy, mean ± deviation of {trials} trials (rank)": (accuracy.values, format_mean_std),
        f"Aggregation error, median of {trials} trials (rank)": (error, "{:.2g}".format),
    }
    for (title, (values, say)), rank in zip(row.items(), ranks.values(), strict=True):
        print_head(title, "budget", "power", *names)
        for k in sorted(range(len(powers)), key=lambda k: budget[powers[k]]):
            placed = [f" ({one})" for one in rank[:, peak.index(k)]] if k in peak else [""] * 9
            cells = [say(one) + place for one, place in zip(values[:, k], placed, strict=False)]
            print_row(budget[powers[k]], powers[k], *cells)
    steps, tried = (one["server_learning_rate"].values for one in (best, result))
    print_head("Server step chosen (* an end of the grid)", "power", *names)
    for k, name in enumerate(powers):
        print_row(name, *(f"{step:g}{'*' * (step in tried[[0, -1]])}" for step in steps[:, k]))
    print_head("Ranks at the peak budget", "", *names)
    learned = -accuracy.transpose("channel", "power", "trial").values[:, peak]
    missed = select_final(best, "aggregation_nmse").transpose("channel", "power", "trial")
    rows = {"accuracy": (learned, np.mean), "error": (missed.values[:, peak], np.median)}
    for what, one in rows.items():
        print_row(f"{what}: correlation with Rayleigh's", *format_correlations(one))
    print_row("correlation of accuracy and error", *format_correlations(*rows.values()))
    top = [peak[int(one.argmax())] for one in means[:, peak]]
    print_row("best there", *(powers[k] for k in top))
    gains = [100 * compute_gain(accuracy[c, k], accuracy[c, top[0]]) for c, k in enumerate(top)]
    apart = (f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in gains)
    print_row(f"points above {powers[top[0]]}", *apart)
    print_cells(args.results, result)
    tell_gains(yaml.safe_load(result.attrs["scenario"]))
    draw(names, powers, accuracy, error, args.figure)


def print_cells(results: Path, result: xr.Dataset) -> None:
    """Print `cotaf` and `pre_scaler` in UMi in the settings of two studies, and at both powers.

    What the two studies have is taken from their results, and the rest from `cell_snr`.
    """
    try:
        new, field = (open_result(results, name) for name in ("cell_snr", "field"))
    except otafl.UserError as error:  # they have not been run
        print(f"the two settings in UMi: left out: {error}", file=sys.stderr)
        return
    here = result.isel(channel=2)
    there = field.isel(channel=2)
    digits, fashion = "digits, as in the field", "Fashion-MNIST, as here"
    rows = (  # setting, power, rounds, results of cotaf and of pre_scaler, cotaf's low threshold
        (digits, "SNR 0 dB", 40, new.isel(zip=0), new.isel(zip=1), None),
        (digits, "SNR 0 dB", 200, new.isel(zip=0), new.isel(zip=1), None),
        (digits, "1 mW", 200, there.isel(zip=3), there.isel(zip=5), new.isel(zip=2)),
        (fashion, "SNR 0 dB", 40, here.sel(power="cotaf"), here.sel(power="pre_scaler"), None),
        (fashion, "1 mW", 40, new.isel(zip=3), new.isel(zip=4), new.isel(zip=5)),
    )
    print_head(
        "UMi in the settings of two studies: `cotaf` and `pre_scaler`",
        *("setting", "power", "rounds", "cotaf (step)", "pre_scaler (step)"),
        *("points of pre_scaler above cotaf", "of cotaf with h_min 0.01 above cotaf"),
    )
    for setting, power, rounds, *results in rows:
        found = [read_tuned(one, rounds) for one in results if one is not None]
        gains = [format_points(values, found[0][0]) for values, _ in found[1:]]
        cells = [f"{format_mean_std(values.values)} ({step})" for values, step in found[:2]]
        print_row(setting, power, rounds, *cells, *gains, *[""] * (3 - len(found)))


def read_tuned(ds: xr.Dataset, rounds: int) -> tuple[xr.DataArray, str]:
    """Return the test accuracy [trial] at the best step on validation data, and that step."""
    step = "server_learning_rate"
    one = count_guesses(ds).sel(round=rounds)
    place = int(one["validation_accuracy"].mean("trial").argmax(step))
    values = one["test_accuracy"].isel({step: place})
    star = "*" * (place in (0, ds.sizes[step] - 1))
    kept = values.drop_vars([name for name in values.coords if name != "trial"])
    return kept, f"{float(ds[step][place]):g}{star}"


Score = tuple[np.ndarray, Callable[..., np.ndarray]]
"""Values [channel, power, trial], of which less is better, and what is taken over trials."""


def format_correlations(first: Score, second: Score | None = None) -> list[str]:
    """Write Spearman's rank correlation over the policies for each channel, with 95 % intervals.

    The second score is that of the same channel; without one, the first score of Rayleigh fading
    is compared with that of each channel. Intervals are percentiles over 2,000 bootstrap samples
    of the trials. The same trials are taken for all policies, channels and scores.
    """
    trials = first[0].shape[-1]
    draws = np.random.default_rng(0).integers(trials, size=(RESAMPLES, trials))
    samples = correlate(first, second, draws)
    low, high = np.nanquantile(samples, [0.025, 0.975], axis=1)
    point = correlate(first, second, np.arange(trials))
    cells = []
    for mean, least, most in zip(point, low, high, strict=True):
        cells.append(f"{mean:.2f} ({least:.2f} to {most:.2f})" if least < most else f"{mean:.2f}")
    return cells


def correlate(first: Score, second: Score | None, take: np.ndarray) -> np.ndarray:
    """Return the rank correlation [channel, ...] of the trials `take` [..., trial]."""
    ranks = [
        stats.rankdata(reduce(values[..., take], axis=-1), axis=1)
        for values, reduce in (first, second or first)
    ]
    a, b = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    a = a if second else a[:1]
    product: np.ndarray = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return product


def draw(
    names: list[str], powers: list[str], accuracy: xr.DataArray, error: np.ndarray, path: Path
) -> None:
    """Draw a group of points for each channel, without lines: channels have no order."""
    plt.rcParams.update(TYPE)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8.5, 8), layout="constrained", sharex=True)
    accuracy = accuracy.transpose("channel", "power", "trial")
    mean, half = accuracy.mean("trial").values, compute_half_interval(accuracy).values
    places = np.arange(len(names))
    for k, name in enumerate(powers):
        at = places + 0.055 * (k - (len(powers) - 1) / 2)
        style = get_policy_style(name) | {"ls": ""}
        top.errorbar(at, mean[:, k], half[:, k], label=name, **style)
        bottom.semilogy(at, error[:, k], **style)
    top.set(ylabel="test accuracy, 95 % interval")
    bottom.set(ylabel="aggregation error, median")
    for axis in (top, bottom):
        axis.grid(alpha=0.3, axis="y")
        axis.set_xticks(places, names)
        for edge in places[1:] - 0.5:
            axis.axvline(edge, color="0.85", lw=0.8)
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=100)
    print(f"\nfigure: {path}")


if __name__ == "__main__":
    command(main)
