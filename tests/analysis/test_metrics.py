"""Targets, costs, tables and tuning take any metric, and know which way it is better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import otafl
from otafl.analysis.tables import build_grid, find_best
from otafl.results.variables import is_reached
from otafl.scenario import load_scenario

KEYS: dict[str, Any] = {
    "name": "metrics",
    "data": {"name": "ridge", "users": 4, "user_samples": 20, "validation": 0.2},
    "model": "linear",
    "transport": "ideal",
    "devices": {"count": 4},
    "training": {"rounds": 20, "eval_every": 2},
    "trials": 2,
    "sweep": {"algorithm.learning_rate": [0.01, 0.3]},
}


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return otafl.run(load_scenario(KEYS))


def test_tuning_takes_the_least_error_and_the_largest_share(result: xr.Dataset) -> None:
    assert float(otafl.select_tuned(result, "learning_rate").learning_rate) == 0.3
    best = otafl.select_tuned(result, "learning_rate", by="test_r2")
    assert float(best.learning_rate) == 0.3


def test_the_best_cell_of_a_table_is_the_least_error(result: xr.Dataset) -> None:
    for name in ("test_mse", "test_r2", "excess_risk"):
        table = build_grid(result, name, ["learning_rate"])
        assert find_best(table, "row").tolist() == [[False, True]], name


def test_an_error_is_reached_from_above(result: xr.Dataset) -> None:
    start = float(result["test_mse"].isel(round=0).mean())
    spent = otafl.compute_cost_to_reach(result, "test_mse", 0.5 * start)
    assert spent["reached"].sel(learning_rate=0.3).values.tolist() == [1.0, 1.0]
    assert spent["reached"].sel(learning_rate=0.01).values.tolist() == [0.0, 0.0]
    assert (spent["round"].sel(learning_rate=0.3) > 0).all()
    share = otafl.compute_cost_to_reach(result, "test_r2", 0.5)
    assert share["reached"].sel(learning_rate=0.3).values.tolist() == [1.0, 1.0]
    assert is_reached("sim_time_s", np.array([1.0, 3.0]), 2.0).tolist() == [False, True]
