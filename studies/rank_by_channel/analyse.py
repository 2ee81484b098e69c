"""Rank power policies on each channel, by accuracy at the server's step that is best on validation
data, and by aggregation error; differences are paired, trial by trial.

    otafl sweep studies/rank_by_channel/rank_by_channel.yaml
    otafl sweep studies/rank_by_channel/cell_snr.yaml
    otafl sweep studies/rank_by_channel/cell_causes.yaml
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
from otafl.results.end_values import count_diverged, select_final
from studies.common.looks import TYPE
from studies.common.tables import (
    classify_budgets,
    command,
    compute_gain,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

RESAMPLES, TIMES = 2000, (40, 200)
NAMES = {"rayleigh": "Rayleigh", "cdl-b": "CDL-B", "umi": "UMi"}
SAME_AS_FULL = "open_loop"
"""Policy that sends at full power at this SNR, so its results are those of `full`."""
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
    result = result.sel(power=[label for label in result["power"].values if label != SAME_AS_FULL])
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
    rank = order(-means[:, peak])
    trials = best.sizes["trial"]
    steps = best["server_learning_rate"].values
    ends = result["server_learning_rate"].values[[0, -1]]
    stepped = np.vectorize(lambda step: f"; {step:g}" + "*" * (step in ends))(steps)
    title = f"Accuracy, mean ± deviation of {trials} trials (rank); server's step, * an end"
    row = {
        title: (accuracy.values, format_mean_std, stepped),
        f"Aggregation error, median of {trials} trials": (
            error,
            "{:.2g}".format,
            np.full(error.shape, ""),
        ),
    }
    for title, (values, say, behind) in row.items():
        print_head(title, "power (budget)", *names)
        for k in sorted(range(len(powers)), key=lambda k: budget[powers[k]]):
            is_ranked = k in peak and "rank" in title
            placed = [f" ({one})" for one in rank[:, peak.index(k)]] if is_ranked else [""] * 9
            parts = zip(values[:, k], placed, behind[:, k], strict=False)
            cells = [say(one) + place + step for one, place, step in parts]
            print_row(f"{powers[k]} ({budget[powers[k]]})", *cells)
    print_head("Ranks at the peak budget", "", *names)
    learned = -accuracy.transpose("channel", "power", "trial").values[:, peak]
    missed = select_final(best, "aggregation_nmse").transpose("channel", "power", "trial")
    rows = {"accuracy": (learned, np.mean), "error": (missed.values[:, peak], np.median)}
    others = [i for i, k in enumerate(peak) if powers[k] != "ci"]
    without = {what: (values[:, others], reduce) for what, (values, reduce) in rows.items()}
    for said, some in (("", rows), (", without ci", without)):
        for what, one in some.items():
            print_row(f"{what}: correlation with Rayleigh's{said}", *format_correlations(one))
        cells = format_correlations(*some.values())
        print_row(f"correlation of accuracy and error{said}", *cells)
    top = [peak[int(one.argmax())] for one in means[:, peak]]
    print_row("best there", *(powers[k] for k in top))
    gains = [100 * compute_gain(accuracy[c, k], accuracy[c, top[0]]) for c, k in enumerate(top)]
    apart = (f"{mean:.1f} [{low:.1f}, {high:.1f}]" for mean, low, high in gains)
    print_row(f"points above {powers[top[0]]}", *apart)
    pair = (accuracy.isel(power=powers.index(name)) for name in ("cotaf", "cao_static"))
    steps_apart = (format_points(*two) for two in zip(*pair, strict=True))
    print_row("points of cotaf above cao_static", *steps_apart)
    print_cells(args.results, result)
    tell_gains(yaml.safe_load(result.attrs["scenario"]))
    draw(names, [powers[k] for k in peak], means[:, peak], args.figure)


def print_cells(results: Path, result: xr.Dataset) -> None:
    """Print `cotaf` and `pre_scaler` in UMi in the settings of two studies, and at both powers.

    What the two studies have is taken from their results, and the rest from the results `cell_*`.
    """
    try:
        first, more, field = (
            open_result(results, name) for name in ("cell_snr", "cell_causes", "field")
        )
    except otafl.UserError as error:  # they have not been run
        print(f"the two settings in UMi: left out: {error}", file=sys.stderr)
        return
    here, there = result.isel(channel=2), field.isel(channel=2)
    digits, fashion = "digits", "Fashion-MNIST"
    own = [here.sel(power=name) for name in ("cotaf", "pre_scaler")]
    field_own = [there.isel(zip=place) for place in (3, 5)]
    both = [more.isel(zip=8), first.isel(zip=1)]
    rows = (  # data, quadratures, power, rounds, results of cotaf and of pre_scaler
        *((digits, "two", "0 dB", rounds, both) for rounds in TIMES),
        *((digits, "one", "0 dB", rounds, [more.isel(zip=i) for i in (9, 10)]) for rounds in TIMES),
        (f"{digits}, the field", "two", "1 mW", 200, field_own),
        (f"{fashion}, this page", "one", "0 dB", 40, own),
        (fashion, "two", "0 dB", 40, [more.isel(zip=i) for i in (11, 12)]),
        (fashion, "one", "1 mW", 40, [first.isel(zip=i) for i in (3, 4)]),
    )
    print_head(
        "UMi in the settings of two studies: `cotaf` and `pre_scaler`",
        *("data and model", "quadratures", "power", "rounds", "cotaf (step)", "pre_scaler (step)"),
        "points of pre_scaler above cotaf",
    )
    for *setting, rounds, pair in rows:
        found = [read_tuned(one, rounds) for one in pair]
        cells = [f"{format_mean_std(values.values)} ({step})" for values, step in found]
        print_row(*setting, rounds, *cells, format_points(found[1][0], found[0][0]))
    # who is silent depends on places and fades only, so the count at 0 dB is that at 1 mW
    usual = field_own[0].assign(participants=read_senders(more.isel(zip=8)))
    of_digits = {0.3: more.isel(zip=0), 0.1: usual} | dict(
        zip((0.03, 0.01, 0.003), (more.isel(zip=i) for i in (1, 2, 3)), strict=True)
    )
    of_fashion = {0.3: more.isel(zip=4), 0.1: first.isel(zip=3)} | dict(
        zip((0.03, 0.01, 0.003), (more.isel(zip=i) for i in (5, 6, 7)), strict=True)
    )
    print_head(
        "UMi at 1 mW by the threshold of `cotaf`",
        *("data and model", "h_min", "devices that send", "accuracy (step)"),
        *("points above h_min 0.1", "points of pre_scaler above it"),
    )
    print_thresholds(digits, of_digits, field_own[1], 200)
    print_thresholds(fashion, of_fashion, first.isel(zip=4), 40)


def print_thresholds(
    setting: str, found: dict[float, xr.Dataset], pre_scaler: xr.Dataset, rounds: int
) -> None:
    """Print devices that send and accuracy by threshold: its result."""
    usual, bound = (read_tuned(one, rounds)[0] for one in (found[0.1], pre_scaler))
    for least, one in found.items():
        values, step = read_tuned(one, rounds)
        accuracy = f"{format_mean_std(values.values)} ({step})"
        gain = "" if least == 0.1 else format_points(values, usual)
        sent = f"{float(read_senders(one)):.1f}"
        print_row(setting, f"{least:g}", sent, accuracy, gain, format_points(bound, values))


def read_senders(ds: xr.Dataset) -> xr.DataArray:
    """Read the mean number of devices that send in a round."""
    sent = ds["participants"]
    return sent.isel(round=slice(1, None)).mean() if "round" in sent.dims else sent


def read_tuned(ds: xr.Dataset, rounds: int) -> tuple[xr.DataArray, str]:
    """Return the test accuracy [trial] at the best step on validation data, and that step."""
    step = "server_learning_rate"
    one = count_diverged(ds, to_last_round=True).sel(round=rounds)
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
    of the policies and of the trials, which are the same for all channels and scores.
    """
    _, policies, trials = first[0].shape
    rng = np.random.default_rng(0)
    samples = [
        correlate(first, second, rng.integers(trials, size=trials), policy_draw)
        for policy_draw in rng.integers(policies, size=(RESAMPLES, policies))
    ]
    low, high = np.nanquantile(samples, [0.025, 0.975], axis=0)
    point = correlate(first, second, np.arange(trials), np.arange(policies))
    cells = []
    for mean, least, most in zip(point, low, high, strict=True):
        cells.append(f"{mean:.2f} [{least:.2f}, {most:.2f}]" if least < most else f"{mean:.2f}")
    return cells


def correlate(
    first: Score, second: Score | None, trials: np.ndarray, policies: np.ndarray
) -> np.ndarray:
    """Return the rank correlation [channel] of some trials and policies; NaN if all are tied."""
    ranks = [
        stats.rankdata(reduce(values[:, policies][..., trials], axis=-1), axis=1)
        for values, reduce in (first, second or first)
    ]
    a, b = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    a = a if second else a[:1]
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    product: np.ndarray = np.divide((a * b).sum(1), scale, where=scale > 0, out=scale * np.nan)
    return product


def draw(names: list[str], powers: list[str], accuracy: np.ndarray, path: Path) -> None:
    """Draw how far each policy is behind the best one of each channel, in points.

    accuracy: means [channel, power] of the policies that are ranked.
    """
    plt.rcParams.update(TYPE)
    order_of_first = np.argsort(-accuracy[0], kind="stable")
    behind = 100 * (accuracy.max(1, keepdims=True) - accuracy).T[order_of_first]
    figure, axis = plt.subplots(figsize=(10, 5.2), layout="constrained")
    shown = axis.imshow(behind, cmap="Blues", aspect="auto", vmin=0)
    for (row, column), value in np.ndenumerate(behind):
        colour = "white" if value > 0.6 * behind.max() else "black"
        axis.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour)
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(powers)), [powers[k] for k in order_of_first])
    figure.colorbar(shown, label="points behind the best policy there")
    figure.savefig(path, dpi=100)
    print(f"\nfigure: {path}")


if __name__ == "__main__":
    command(main)
