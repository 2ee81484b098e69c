"""What a reader must know of a result: models that only guess, and power budgets that differ.

A guess names the most frequent class of the test samples, or a device's most frequent class for a
personal model on the device's own samples. An accuracy is at chance if its mean over the trials
lies at most `MARGIN` standard errors of a guess above the share of that class.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.points import build_labels, is_numeric, list_axes
from otafl.results.end_values import select_end_total
from otafl.scenario.notes import KINDS, describe_power_budgets

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
        f"{name} {_format_range(judged[name].accuracy[points])}"
        + ("" if points.all() else f" at {points.sum()} of {len(points)} points")
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


def _format_range(values: np.ndarray) -> str:
    low, high = (f"{value:.2f}" for value in (np.nanmin(values), np.nanmax(values)))
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
