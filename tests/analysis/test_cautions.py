"""Accuracies no better than a guess: which points, and where the learning is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from otafl.analysis import cautions

pytestmark = pytest.mark.exact

GUESS, SAMPLES = 0.1, 400


def result(trials: int = 1, own: bool = False, **accuracies: list[float]) -> xr.Dataset:
    """Accuracies of points at SNRs of 0, 10, .. dB, all trials alike."""
    points = len(next(iter(accuracies.values())))
    names = ("majority_share", "test_samples", "majority_accuracy", "own_test_samples")
    shares = dict(zip(names, (GUESS, SAMPLES, 0.5, SAMPLES), strict=True))
    shares = shares if own else {name: shares[name] for name in names[:2]}
    one = np.ones((points, trials))
    data: dict[str, Any] = {
        name: (("snr_db", "trial", "round"), (np.array(values)[:, None] * one)[..., None])
        for name, values in accuracies.items()
    }
    data |= {name: (("snr_db", "trial"), value * one) for name, value in shares.items()}
    ds = xr.Dataset(data, {"snr_db": 10.0 * np.arange(points), "round": [4]})
    return ds.assign_coords(final_round=("snr_db", np.full(points, 4.0)))


@pytest.mark.parametrize("trials", [1, 25])
def test_the_margin_is_three_standard_errors_of_a_guess(trials: int) -> None:
    limit = GUESS + 3 * (GUESS * (1 - GUESS) / (SAMPLES * trials)) ** 0.5
    assert cautions.describe_chance(result(trials, test_accuracy=[limit - 1e-9]))
    assert not cautions.describe_chance(result(trials, test_accuracy=[limit + 1e-9]))


def test_it_counts_the_points() -> None:
    assert cautions.describe_chance(result(test_accuracy=[0.1, 0.5, 0.12])) == (
        "at chance: test_accuracy 0.10 to 0.12 at 2 of 3 points; a guess gets 0.10"
    )
    assert cautions.describe_chance(result(test_accuracy=[0.1, 0.1])) == (
        "at chance: test_accuracy 0.10; a guess gets 0.10"
    )


def test_it_says_where_the_learning_is() -> None:
    local = cautions.describe_chance(result(test_accuracy=[0.1], local_test_accuracy=[0.7]))
    assert local == (
        "at chance: test_accuracy 0.10; a guess gets 0.10; the learning shows in "
        "local_test_accuracy (0.70)"
    )


def test_a_personal_model_is_held_to_its_devices_most_frequent_class() -> None:
    keys = {"test_accuracy": [0.4], "personal_own_test_accuracy": [0.52]}
    assert cautions.describe_chance(result(own=True, **keys)) == (
        "at chance: personal_own_test_accuracy 0.52; a guess gets 0.50"
    )
    assert not cautions.describe_chance(
        result(own=True, **keys | {"personal_own_test_accuracy": [0.7]})
    )


def test_missing_values_count_for_nothing() -> None:
    ds = result(2, test_accuracy=[0.1, 0.9])
    ds["test_accuracy"][0, 1] = np.nan
    assert "0.10 at 1 of 2 points" in cautions.describe_chance(ds)
    ds["test_accuracy"][0] = np.nan
    assert cautions.describe_chance(ds) == ""
    assert cautions.describe_chance(result(test_accuracy=[0.1]).drop_vars("majority_share")) == ""
