"""Predictions without a model: a person's mean, and a person's line in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import engine
from support.small_sets import PEOPLE, write_parkinsons

from otafl.evaluation.recorder import Recorder

pytestmark = pytest.mark.exact


def record(keys: dict[str, Any]) -> dict[str, np.ndarray]:
    one = engine({"model": "linear", "transport": "ideal", "trials": 2, **keys})
    recorder = Recorder(one, 1, 2)
    recorder.take_record(0, 0.0)
    return recorder.record().variables


def test_a_score_that_is_a_line_in_time_is_explained_by_it(tmp_path: Path) -> None:
    """Person p has 10 p + t / 2 at time 7 t, t = 1, 2, ..."""
    write_parkinsons(tmp_path / "parkinsons")
    people = {"name": "parkinsons", "root": str(tmp_path)}
    for test in ({}, {"test": "official", "own_test": True}):
        found = record({"data": people | test, "devices.count": 3})
        np.testing.assert_allclose(found["line_control_mse"], 0.0, atol=1e-8)
        np.testing.assert_allclose(found["line_control_r2"], 1.0)
        errors, labels, trained = [], [], []
        for person, count in enumerate(PEOPLE, 1):
            kept = int(0.75 * count)
            scores = 10.0 * person + 0.5 * np.arange(1, count + 1)
            errors.append((scores[kept:] - scores[:kept].mean()) ** 2)
            labels.append(scores[kept:])
            trained.append(scores[:kept])
        mse = np.concatenate(errors).mean()
        scale = np.concatenate(trained).var()  # scores are standardised by the training part
        np.testing.assert_allclose(found["mean_control_mse"], mse / scale, rtol=1e-5)
        r2 = 1.0 - mse / np.concatenate(labels).var()
        np.testing.assert_allclose(found["mean_control_r2"], r2, rtol=1e-5)
        np.testing.assert_allclose(found["own_test_samples"], sum(map(len, labels)))


def test_without_times_there_is_no_line() -> None:
    found = record({"data": {"name": "ridge", "users": 4, "own_test": True}})
    assert "mean_control_mse" in found
    assert "line_control_mse" not in found
