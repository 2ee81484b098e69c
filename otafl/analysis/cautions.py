"""What a reader must know of a result: guesses, updates that do not arrive, and power budgets.

A guess names the most frequent class of the test samples, or a device's most frequent class for a
personal model on the device's own samples. An accuracy is at chance if its mean over the trials
lies at most `MARGIN` standard errors of a guess above the share of that class.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.points import build_labels, is_numeric, list_axes
from otafl.core.suggestions import format_count
from otafl.results.end_values import (
    describe_diverged,
    find_end_rounds,
    select_at_end,
    select_end_total,
)
from otafl.results.header import read_scenario
from otafl.scenario.axes import format_label
from otafl.scenario.notes import KINDS, describe_power_budgets

MAX_NAMED_POINTS = 3
"""Points that are named."""

ACCURACIES = {
    "test_accuracy": ("majority_share", "test_samples"),
    "personal_own_test_accuracy": ("majority_accuracy", "own_test_samples"),
    "personal_test_accuracy": ("majority_share", "test_samples"),
    "local_test_accuracy": ("majority_share", "test_samples"),
}
"""Accuracy -> the accuracy of a guess, and the number of samples that both are measured on."""

MARGIN = 3.0
"""A guess exceeds this many standard errors with a probability of 0.13 %."""


class Judged(NamedTuple):
    """An accuracy at the end of the trials, beside that of a guess.

    Parameters
    ----------
    accuracy, guess, limit : float64 [points]; NaN where no trial has the accuracy. The limit is the
        guess plus the margin.
    """

    accuracy: np.ndarray
    guess: np.ndarray
    limit: np.ndarray

    @property
    def is_at_chance(self) -> np.ndarray:
        """Points at which the accuracy is at chance, bool [points]."""
        return np.asarray(self.accuracy <= self.limit)


def judge(ds: xr.Dataset) -> dict[str, Judged]:
    """Compare the accuracies of a result with a guess.

    Parameters
    ----------
    ds : a combined dataset.

    Returns
    -------
    Variable of `ACCURACIES` that the result has -> how it compares. A result that was written
    before the share of the most frequent class was recorded has none.
    """
    found = {}
    for name, references in ACCURACIES.items():
        names = (name, *references)
        if not all(one in ds for one in names):
            continue
        values = select_end_total(ds, name)
        there = values.notnull()
        accuracy, share, count = (
            select_end_total(ds, one).where(there).mean("trial").values.ravel() for one in names
        )
        error = np.sqrt(share * (1.0 - share) / (count * there.sum("trial").values.ravel()))
        if there.any():
            found[name] = Judged(accuracy, share, share + MARGIN * error)
    return found


def describe_chance(ds: xr.Dataset) -> str:
    """Describe which accuracies are at chance, at which points, and which one shows the learning.

    Returns
    -------
    A sentence without its full stop; empty where every accuracy exceeds a guess.
    """
    judged = judge(ds)
    if not judged:
        return ""
    at = {name: one.is_at_chance for name, one in judged.items() if one.is_at_chance.any()}
    main, *others = judged
    if not at:
        return ""
    clauses = [
        f"{name} {_format_range(judged[name].accuracy[points])}{_name_points(ds, points)}"
        for name, points in at.items()
    ]
    guess = np.concatenate([judged[name].guess[points] for name, points in at.items()])
    text = f"at chance: {', '.join(clauses)}; a guess gets {_format_range(guess)}"
    better = {
        name: judged[name].accuracy[judged[main].is_at_chance] for name in others if name not in at
    }
    gets = [
        f"{name} ({_format_range(values)})"
        for name, values in better.items()
        if np.isfinite(values).any()
    ]
    return f"{text}; the learning shows in {', '.join(gets)}" if gets else text


def _name_points(ds: xr.Dataset, points: np.ndarray) -> str:
    """Name the points among all of a sweep; empty for all."""
    if points.all():
        return ""
    names, texts = build_labels(ds, list_axes(ds), units=False)
    each = [
        " ".join(f"{name}={text}" for name, text in zip(names, texts[place], strict=True))
        for place in np.flatnonzero(points)
    ]
    more = ", ..." if len(each) > MAX_NAMED_POINTS else ""
    return f" at {len(each)} of {len(points)} points ({', '.join(each[:MAX_NAMED_POINTS])}{more})"


def _format_range(values: np.ndarray) -> str:
    low, high = (f"{value:.2f}" for value in (np.nanmin(values), np.nanmax(values)))
    return low if low == high else f"{low} to {high}"


UPDATES = ("updates_started", "updates_lost", "updates_used")
"""Updates that devices began to compute, that never got to a slot, and that were aggregated."""

SILENCED_BY = {
    "tci": "power.threshold",
    "cotaf": "power.h_min",
    **{name: f"power {name}" for name in ("cao_average", "budget_paced", "lyapunov")},
}
"""Power policy -> what silences a device."""

LOST_BY = {
    "faults.crash_probability": "crashes",
    "devices.senders": "devices.senders",
    "devices.round_budget_j": "devices.round_budget_j",
}
"""Setting that is not zero -> the cause for which the server lacks an update."""

NONE = ("0", "0.0", "None", "{}")
"""Texts of settings that are zero, or not given."""

LOSSES = {"outage", "crashes"}
"""Causes for which an update is lost after its device transmitted."""


def describe_lost_runs(ds: xr.Dataset) -> str:
    """Describe the trials in which no update arrived; empty if there are none."""
    if not all(name in ds for name in UPDATES):
        return ""
    started, _, used = (select_end_total(ds, name) for name in UPDATES)
    lost = ((started > 0) & (used == 0)).values.reshape(-1, ds.sizes["trial"])
    if not lost.any():
        return ""
    return (
        f"no update arrived in {lost.sum()} of {format_count(lost.size, 'trial')}"
        f"{_name_points(ds, np.any(lost, 1))}: the model there is that of the start"
    )


def describe_ended_paths(ds: xr.Dataset) -> str:
    """Describe the paths of a file that end before training does; empty if there are none."""
    if "path_end_s" not in ds:
        return ""
    end_s, trained_s = ds["path_end_s"], select_end_total(ds, "sim_time_s")
    others = [dim for dim in end_s.dims if dim != "path"]
    ended = (end_s <= trained_s).any(others).values
    if not ended.any():
        return ""
    first_s, devices = end_s.min(others).values, np.flatnonzero(ended)
    named = [f"{k} at {first_s[k]:.4g} s" for k in devices[:MAX_NAMED_POINTS]]
    more = ", ..." if len(devices) > MAX_NAMED_POINTS else ""
    what = "so training ended" if ended.all() else "so they were absent until training ended"
    return (
        f"the paths of {len(devices)} of {format_count(ended.size, 'device')} ended "
        f"({', '.join(named)}{more}), {what} at {float(trained_s.max()):.4g} s; "
        "continue the paths in channel.mobility.path, or use fewer training.rounds"
    )


def describe_arrivals(ds: xr.Dataset) -> str:
    """Describe how many devices were aggregated where fewer arrived than took part, and why.

    Numbers are means over rounds and trials. Updates on their way at the end of an asynchronous
    run, at most one a device, are not counted.

    Returns
    -------
    A sentence without its full stop; empty where all arrived, or if the result has no counts.
    """
    if not all(name in ds for name in UPDATES):
        return ""
    rounds = find_end_rounds(ds).where(lambda ends: ends > 0)
    rates = [(select_end_total(ds, name) / rounds).mean("trial") for name in UPDATES]
    started, missed, used = (rate.values.ravel() for rate in rates)
    settings = _list_settings(ds)
    silent, unreached = started - missed - used, np.zeros_like(started)
    longest = float(rounds.max())
    for place, get in enumerate(settings):
        is_timed = get("devices.protocol") == "rounds" and get("devices.late") == "drop"
        allowed = 0.0 if is_timed else float(get("devices.count"))
        if not silent[place] * longest > allowed + 1e-6:
            silent[place] = 0.0
        if (
            is_timed
            and get("downlink")[:7] == "digital"
            and get("devices.availability") == "always"
        ):
            few, count = get("devices.participants"), get("devices.count")
            unreached[place] = float(count if few == "None" else few) - started[place]
    short = missed + silent + unreached > 1e-6
    if not short.any():
        return ""
    causes = [cause for i in np.flatnonzero(short) for cause in _list_causes(settings[i])]
    lost = LOSSES & set(causes)
    verb = "lost" if lost == set(causes) else "silent or lost" if lost else "silent"
    taking_part = _format_counts((started + unreached)[short])
    text = f"{_format_counts(used[short])} of {taking_part} devices aggregated"
    text += _name_points(ds, short)
    for counts, how in (
        (silent, f"{verb} by {' or '.join(dict.fromkeys(causes))}"),
        (missed, "without a slot (devices.deadline_s, or left)"),
        (unreached, "not reached by the downlink"),
    ):
        if counts[short].any():
            text += f", {_format_counts(counts[short])} {how}"
    text += " (means over rounds and trials)"
    if "tx_energy_j" in ds and "device" in ds["tx_energy_j"].dims:
        spent = select_at_end(ds, "tx_energy_j").transpose(*list_axes(ds), "trial", "device")
        never = (spent == 0).sum("device").mean("trial").values.ravel()[short]
        if never.any() and (spent > 0).any():
            counts = np.array([float(get("devices.count")) for get in settings])[short]
            text += f"; {_format_counts(never)} of {_format_counts(counts)} never transmitted"
    return text


def describe_round_interval(ds: xr.Dataset) -> str:
    """Describe where the fading of moving devices has another time than the simulated rounds.

    Returns
    -------
    A sentence without its full stop; empty unless `channel.round_interval_s` differs more than
    threefold from the mean simulated time of a round, with a `channel.speed_kmh` above 0.
    """
    if "sim_time_s" not in ds:
        return ""
    means = (select_end_total(ds, "sim_time_s") / find_end_rounds(ds)).mean("trial").values.ravel()
    settings = _list_settings(ds)
    moves = [get("channel.speed_kmh") not in NONE for get in settings]
    given = [get("channel.round_interval_s") for get in settings]
    spans = np.array([1.0 if text in NONE else float(text) for text in given])
    wrong = moves & (means > 0) & ((spans > 3.0 * means) | (3.0 * spans < means))
    if not wrong.any():
        return ""
    low, high = (f"{end:.2g}" for end in (means[wrong].min(), means[wrong].max()))
    given_text = ", ".join(dict.fromkeys(f"{span:g}" for span in spans[wrong]))
    return (
        f"devices of channel.speed_kmh move for channel.round_interval_s ({given_text} s) between "
        f"rounds, which take {low if low == high else f'{low} to {high}'} s of simulated time"
        f"{_name_points(ds, wrong)}; set round_interval_s to that"
    )


def _list_settings(ds: xr.Dataset) -> list[Callable[[str], str]]:
    """Return a function for each point that finds one of its settings."""
    names, texts = build_labels(ds, list_axes(ds), units=False)
    tree = read_scenario(ds.attrs)
    return [
        functools.partial(_find_setting, tree, dict(zip(names, place, strict=True)))
        for place in texts
    ]


def _find_setting(tree: Mapping[str, Any], at: Mapping[str, str], key: str) -> str:
    """Return a setting of a point as text: of its coordinates, else of the scenario.

    The text of a component is its name and settings, as in "tci(threshold=0.1)". A default of a
    swept component is "None".
    """
    section, _, last = key.rpartition(".")
    for name in ("device_count" if key == "devices.count" else last, key.replace(".", "_")):
        if name in at:
            return at[name]
    if section in at:
        found = re.search(rf"\b{last}=([^,()]+)", at[section])
        return found[1] if found else "None"
    value = functools.reduce(lambda part, word: part.get(word, {}), key.split("."), tree)
    return str(format_label(value))


def _list_causes(get: Callable[[str], str]) -> list[str]:
    """List the settings of a point by which updates may be silent or lost."""
    found = [said for key, said in LOST_BY.items() if get(key) not in NONE]
    transport, power = get("transport"), get("power").partition("(")[0]
    if not transport.startswith("digital"):
        if power in SILENCED_BY or not found:
            found.append(SILENCED_BY.get(power, f"power {power}"))
        return found
    if get("transport.gain_threshold") not in NONE[:2]:
        found.append("transport.gain_threshold")
    if get("transport.max_symbols") not in NONE:
        found.append("transport.max_symbols")
    if get("csi").partition("(")[0] != "perfect":
        found.append("outage")
    if get("transport.rate") == "mcs":
        found.append("transport.rate")
    return found or ["a rate of zero"]


def _format_counts(values: np.ndarray) -> str:
    """Write the least and the greatest of some counts, with one decimal place at most."""
    low, high = (f"{end:.1f}".removesuffix(".0") for end in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def describe_mixed_budgets(ds: xr.Dataset) -> str:
    """Describe which points hold which kind of power budget.

    Parameters
    ----------
    ds : xr.Dataset
        A combined dataset, or points of one.

    Returns
    -------
    str
        A sentence without its full stop; empty if all points that are there hold the same kind, or
        if the result does not record the kinds.
    """
    axes = list_axes(ds)
    if "power_constraint" not in ds or not axes:
        return ""
    kinds = ds["power_constraint"].max("trial").transpose(*axes).values.ravel()
    names, texts = build_labels(ds, axes, units=False)
    heads = [f"{name}=" if is_numeric(ds[name]) else "" for name in names]
    points = [
        (dict(zip(names, map(operator.add, heads, place), strict=True)), KINDS[int(number)])
        for place, number in zip(texts, kinds, strict=True)
        if number in range(len(KINDS))  # not NaN, and nothing that only another program writes
    ]
    return describe_power_budgets(points)


def list_cautions(ds: xr.Dataset) -> list[str]:
    """List what holds for a result besides guesses: lost trials and updates, unlike budgets."""
    every = (
        describe_diverged,
        describe_lost_runs,
        describe_ended_paths,
        describe_arrivals,
        describe_round_interval,
        describe_mixed_budgets,
    )
    return [said for describe in every if (said := describe(ds))]
