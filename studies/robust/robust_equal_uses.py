"""Robust rules at equal channel uses: step sizes that were tuned without attackers, then attacks.

otafl sweep studies/robust/robust_equal_uses_steps.yaml
otafl sweep studies/robust/robust_equal_uses_more_steps.yaml
otafl sweep studies/robust/robust_equal_uses_votes.yaml
otafl sweep studies/robust/robust_equal_uses_more_votes.yaml
otafl sweep studies/robust/robust_equal_uses.yaml
python -m studies.robust.robust_equal_uses [results] [--figure robust_equal_uses.png]
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import count_diverged, select_at_end
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

STUDY = "robust_equal_uses"
TUNINGS = ("steps", "more_steps", "votes", "more_votes")
"""Ends of the names of the scenarios without attackers."""
GUESS = 0.1
"""Accuracy of a guess among ten classes."""
DEVICES = 20
RULES = {"multi_krum": "Multi-Krum"}
"""Of rules with a proper name; the others have that of the scenario."""
PARTITIONS = {"iid": "IID", "label_skew(classes_per_device=2)": "two classes a device"}
ATTACKS = ("sign_flip", "inner_product")
DRAWN = {
    "sum": ("#000000", "o"),
    "10 groups, geometric median": ("#0072B2", "s"),
    "20 groups, centred clipping": ("#999933", "h"),
    "20 groups, geometric median": ("#56B4E9", "D"),
    "20 groups, Multi-Krum": ("#8C510A", ">"),
    "majority vote": ("#E69F00", "v"),
    "type-based, median": ("#009E73", "^"),
    "digital, geometric median": ("#332288", "*"),
}
"""Uplinks of the figure, with colour and marker."""
UNTOLD = {"5 groups, centred clipping", "digital, centred clipping"}
"""Uplinks that are not in the tables."""


@dataclass(frozen=True)
class Entry:
    """An entry of a scenario's joint axis: an uplink with its rule and settings.

    Parameters
    ----------
    label : str
        Uplink and rule.
    settings : str
        What was tuned besides the step size of the devices.
    rounds : int
        Number of rounds.
    size : float
        Step of a vote, or range of levels; 0 of other uplinks.
    """

    label: str
    settings: str
    rounds: int
    size: float = 0.0


def read_entry(transport: str, groups: str, rule: str, codec: str, rounds: int) -> Entry:
    """Read an entry of the coordinates of a result."""
    name, _, keys = transport.rstrip(")").partition("(")
    given = dict(re.findall(r"(\w+)=([^,)]+)", keys))
    number = DEVICES if groups == "devices" else int(groups)
    of = RULES.get(rule, rule.replace("_", " "))
    if name == "fsk_majority_vote":
        return Entry("majority vote", f"vote {given['step']}", rounds, float(given["step"]))
    if name == "type_based":
        text = f"{given.get('levels', 16)} levels, range {given['range']}"
        return Entry("type-based, median", text, rounds, float(given["range"]))
    if name == "digital":
        bits = re.search(r"bits=(\d+)", codec)
        assert bits is not None
        return Entry(f"digital, {of}", f"{bits[1]} bits", rounds)
    return Entry("sum" if number == 1 else f"{number} groups, {of}", "", rounds)


def list_entries(result: xr.Dataset) -> list[Entry]:
    """List the entries of a result's joint axis, or its steps of a vote."""
    if "zip" not in result.dims:
        rounds = int(result["round"].values[-1])
        votes = (f"fsk_majority_vote(step={step:g})" for step in result["step"].values)
        return [read_entry(vote, "1", "mean", "identity", rounds) for vote in votes]
    names = ("transport", "groups", "rule", "codec")
    return [
        read_entry(*(str(result[name].values[at]) for name in names), int(result["rounds"][at]))
        for at in range(result.sizes["zip"])
    ]


@dataclass(frozen=True)
class Chosen:
    """The settings with the best mean accuracy without attackers.

    Parameters
    ----------
    entry : Entry
        Uplink, rule and settings.
    learning_rate : float
        Step size of the devices.
    is_interior : bool
        Whether step size and size of the entry are no ends of their grids.
    """

    entry: Entry
    learning_rate: float
    is_interior: bool


def choose(tunings: list[xr.Dataset]) -> dict[tuple[str, str], Chosen]:
    """Choose the best settings of each partition and label."""
    tried: dict[tuple[str, str], list[tuple[Entry, float, np.ndarray]]] = {}
    for result in tunings:
        axis = "zip" if "zip" in result.dims else "step"
        accuracy = select_at_end(result, "test_accuracy")
        for (at, entry), part, rate in itertools.product(
            enumerate(list_entries(result)),
            map(str, result["partition"].values),
            map(float, result["learning_rate"].values),
        ):
            own = accuracy.isel({axis: at}).sel(partition=part, learning_rate=rate)
            tried.setdefault((part, entry.label), []).append((entry, rate, own.values))
    return {key: _select_best(some) for key, some in tried.items()}


def _select_best(tried: list[tuple[Entry, float, np.ndarray]]) -> Chosen:
    """Select the best of the settings of one label; the first of equal ones."""
    entry, rate, _ = max(tried, key=lambda one: round(float(one[2].mean()), 5))
    rates, sizes = [own for _, own, _ in tried], [own.size for own, _, _ in tried]
    is_interior = min(rates) < rate < max(rates)
    if entry.size:
        is_interior &= min(sizes) < entry.size < max(sizes)
    return Chosen(entry, rate, is_interior)


def list_places(result: xr.Dataset) -> dict[tuple[str, str], int]:
    """List the places on the joint axis of the study by partition and label, of what was run."""
    parts, entries = map(str, result["partition"].values), list_entries(result)
    accuracy = select_at_end(result, "test_accuracy")
    was_run = accuracy.notnull().all(("trial", "byzantine")).any("attack")
    return {
        (part, one.label): at
        for at, (part, one) in enumerate(zip(parts, entries, strict=True))
        if bool(was_run[at])
    }


NO_ATTACK = "no attackers", {"attack": ATTACKS[0], "byzantine": 0}


def list_cases() -> Iterator[tuple[str, dict[str, object]]]:
    """List the columns of accuracies: the attack and the number of attackers."""
    for attack, count in itertools.product(ATTACKS, (4, 6)):
        text = f"{attack.replace('_', ' ')}, {100 * count // DEVICES} %"
        yield text, {"attack": attack, "byzantine": count}


def format_cell(values: xr.DataArray) -> str:
    """Write mean and standard deviation over trials; a dash of a point that was not run."""
    return format_mean_std(values.values) if bool(values.notnull().all()) else "-"


def format_gain(values: xr.DataArray, base: xr.DataArray) -> str:
    """Write the points against other trials; a dash of points that were not run."""
    there = bool(values.notnull().all()) and bool(base.notnull().all())
    return format_points(values, base) if there else "-"


def print_chosen(result: xr.Dataset, best: dict[tuple[str, str], Chosen]) -> None:
    """Print the rounds and the tuned settings."""
    print_head("Tuned step sizes, * an end", "uplink", "rounds", *PARTITIONS.values())
    labels = dict.fromkeys(label for _, label in list_places(result))
    for label in [one for one in labels if one not in UNTOLD]:
        tuned = [best[part, label] for part in PARTITIONS]
        cells = (
            f"{one.learning_rate:g}{'' if one.is_interior else '*'}"
            f"{one.entry.settings and '; '}{one.entry.settings}"
            for one in tuned
        )
        print_row(label, tuned[0].entry.rounds, *cells)


def print_accuracy(result: xr.Dataset, part: str) -> None:
    """Print, for one partition, the points against the sum without attackers and with 20 %, where
    the sum still learns, and the accuracies of the sum and with 30 %.
    """
    accuracy, places = select_at_end(result, "test_accuracy"), list_places(result)
    cases = sorted([NO_ATTACK, *list_cases()], key=lambda case: case[1]["byzantine"])
    words = [f"{text}{': accuracy' * (case['byzantine'] == 6)}" for text, case in cases]
    title = f"Points against the sum at equal channel uses, {PARTITIONS[part]}"
    print_head(title, "uplink", *words)
    base = accuracy.isel(zip=places[part, "sum"], drop=True)
    for (own, label), at in places.items():
        if own == part and label not in UNTOLD:
            one = accuracy.isel(zip=at, drop=True)
            cells = (
                format_cell(one.sel(case))
                if label == "sum" or case["byzantine"] == 6
                else format_gain(one.sel(case), base.sel(case))
                for _, case in cases
            )
            print_row(f"{label}{': accuracy' * (label == 'sum')}", *cells)


def print_tables(result: xr.Dataset, best: dict[tuple[str, str], Chosen]) -> None:
    """Print the tables of the page."""
    print_chosen(result, best)
    for part in PARTITIONS:
        print_accuracy(result, part)


def draw(result: xr.Dataset, path: Path) -> None:
    """Draw the lower mean accuracy under the two attacks by the share of attackers."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 5.2), layout="constrained", sharey=True)
    accuracy, places = select_at_end(result, "test_accuracy"), list_places(result)
    mean = accuracy.mean("trial", skipna=False)
    worst, which = mean.min("attack", skipna=False), mean.fillna(0.0).argmin("attack")
    spread = accuracy.std("trial", ddof=1).isel(attack=which)
    for axis, (part, title) in zip(axes, PARTITIONS.items(), strict=True):
        for label, (colour, marker) in DRAWN.items():
            at = places.get((part, label))
            if at is None or not bool(worst.isel(zip=at).notnull().all()):
                continue
            own, error = (one.isel(zip=at) for one in (worst, spread))
            share = 100 * own["byzantine"] / DEVICES
            axis.errorbar(
                share, own, error, label=label, marker=marker, color=colour, capsize=2, elinewidth=1
            )
        axis.axhline(GUESS, color="#808080", linewidth=0.8, linestyle="--", label="guess")
        axis.set(title=title, xlabel="attackers (%)", xticks=[0, 10, 20, 30], ylim=(0, 1.0))
    axes[0].set_ylabel("accuracy, worse attack, mean ± deviation")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)


def main() -> None:
    args = parse_study_arguments(__doc__, f"{STUDY}.png")
    result = count_diverged(open_result(args.results, STUDY))
    tunings = [count_diverged(open_result(args.results, f"{STUDY}_{end}")) for end in TUNINGS]
    print_tables(result, choose(tunings))
    draw(result, args.figure)


if __name__ == "__main__":
    command(main)
