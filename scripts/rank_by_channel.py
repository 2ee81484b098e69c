"""Rank power policies on each channel, by accuracy at their best step size on validation data, and
by aggregation error; differences are paired, trial by trial.

    otafl sweep scenarios/studies/rank_by_channel.yaml
    python scripts/rank_by_channel.py [results/rank_by_channel] [--figure rank_by_channel.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xarray as xr
from looks import TYPE, policy
from matplotlib import pyplot as plt
from scipy import stats
from tables import command, head, row

import otafl
from otafl.analysis.paired import compared
from otafl.analysis.summary import spread
from otafl.results.ending import final

CHANCE = 0.1
NAMES = {"rayleigh": "Rayleigh", "cdl-b": "CDL-B", "umi": "UMi"}


def short(label: str) -> str:
    """A channel's name, or the place of a trace."""
    name, _, keys = label.partition("(")
    place = dict(part.split("=") for part in keys.rstrip(")").split(", ") if "=" in part)
    return place["scene"].capitalize() if "scene" in place else NAMES[name]


def order(values: xr.DataArray, best_first: int) -> np.ndarray:
    """Ranks [channel, power], 1 for the best."""
    ranks: np.ndarray = stats.rankdata(best_first * values.values, axis=1).astype(int)
    return ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path("results/rank_by_channel")
    parser.add_argument("result", nargs="?", type=Path, default=default)
    parser.add_argument("--figure", type=Path, default=Path("rank_by_channel.png"))
    args = parser.parse_args()
    result = otafl.open_results(args.result)
    best = otafl.tuned(result, over="learning_rate")
    accuracy = final(best, "test_accuracy").fillna(CHANCE)  # a diverged model guesses
    accuracy = accuracy.transpose("channel", "power", "trial")
    error = final(best, "aggregation_nmse").transpose("channel", "power", "trial").median("trial")
    channels = [short(str(label)) for label in best["channel"].values]
    powers = [str(label) for label in best["power"].values]
    ranks = order(accuracy.mean("trial"), -1), order(error, 1)
    head(f"Accuracy, mean ± deviation of {best.sizes['trial']} trials (rank)", "power", *channels)
    for k, name in enumerate(powers):
        cells = map(spread, accuracy.isel(power=k).values)
        row(name, *(f"{cell} ({rank})" for cell, rank in zip(cells, ranks[0][:, k], strict=True)))
    head("Aggregation error (NMSE), median (rank)", "power", *channels)
    for k, name in enumerate(powers):
        cells = (f"{one:.2g}" for one in error.isel(power=k).values)
        row(name, *(f"{cell} ({rank})" for cell, rank in zip(cells, ranks[1][:, k], strict=True)))
    head("What Rayleigh fading says of the others", "", *channels[1:])
    for what, found in zip(("accuracy", "error"), ranks, strict=True):
        alike = [stats.spearmanr(found[0], found[c]).statistic for c in range(1, len(channels))]
        row(f"rank correlation, {what}", *(f"{one:.2f}" for one in alike))
    top = [int(accuracy.mean("trial").values[c].argmax()) for c in range(len(channels))]
    row("best there", *(powers[k] for k in top[1:]))
    lost = []
    for c, k in enumerate(top):
        apart = 100 * compared(accuracy[c, k], accuracy[c, top[0]])
        lost.append(f"{apart['difference']:.1f} ({apart['low']:.1f} to {apart['high']:.1f})")
    row(f"points above {powers[top[0]]}", *lost[1:])
    plt.rcParams.update(TYPE)
    figure, axis = plt.subplots(figsize=(10, 5), layout="constrained")
    for k, name in enumerate(powers):
        mean = accuracy.isel(power=k).mean("trial")
        deviation = accuracy.isel(power=k).std("trial", ddof=1)
        axis.errorbar(channels, mean, deviation, label=name, capsize=2, **policy(name))
    axis.set(ylabel="test accuracy", ylim=(0, 0.8))
    axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    command(main)
