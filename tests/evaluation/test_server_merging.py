"""Values of trials, of those of their servers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contract.small import scenario, tree

import otafl
from otafl.evaluation.recorder import merge_events, merge_servers

pytestmark = pytest.mark.exact

CELLS = {"name": "cells", "servers": 3, "cross_gain_db": -10}


def test_a_trial_has_the_mean_of_its_servers() -> None:
    values = {
        "test_accuracy": np.array([0.1, 0.2, 0.3, 0.5, np.nan, 0.7]),
        "wall_time_s": np.array([2.0] * 6),
        "tx_energy_j": np.arange(12.0).reshape(6, 2),
        "level_test_accuracy": np.arange(12.0).reshape(6, 2),
        "dp_epsilon": np.array([1.0, 3.0, 2.0, np.nan, 0.5, 0.1]),
    }
    found = merge_servers(values, 3)
    np.testing.assert_allclose(found["test_accuracy"], [0.2, 0.6])
    np.testing.assert_array_equal(
        found["server_test_accuracy"], [[0.1, 0.2, 0.3], [0.5, np.nan, 0.7]]
    )
    np.testing.assert_array_equal(found["dp_epsilon"], [3.0, 0.5])
    np.testing.assert_array_equal(found["tx_energy_j"], [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    np.testing.assert_array_equal(found["level_test_accuracy"], [[2, 3], [8, 9]])
    assert sorted(found) == sorted([*values, "server_dp_epsilon", "server_test_accuracy"])
    assert merge_servers(values, 1) == values


def test_events_of_all_servers() -> None:
    found = merge_events(np.array([[0.0, 1], [1, np.nan], [0, 0], [1, 1]]), 2, 5, "device")
    np.testing.assert_array_equal(found, [[0, 1, 6, np.nan], [0, 0, 6, 6]])
    same = merge_events(np.array([[3.0], [4.0]]), 2, 5, "start_s")
    np.testing.assert_array_equal(same, [[3, 4]])


@pytest.mark.slow
def test_everything_that_can_be_kept(tmp_path: Path) -> None:
    """Link, timeline and models of each server, under its dims and numbers."""
    output = {"save_link": True, "save_timeline": True, "save_models": True}
    keys = {"topology": CELLS, "output": output, "algorithm": "ditto", "trials": 2}
    path = tmp_path / "all.nc"
    result = otafl.run(scenario(keys), path)
    assert result.sizes["server"] == 3
    assert result.sizes["device"] == 12
    assert result.link_h_0_real.dims[-3:] == ("server", "segment_0", "server_device")
    assert result.link_neighbours_0.dims[-2:] == ("server", "segment_0")
    devices = result.timeline_device.values
    assert np.unique(devices[np.isfinite(devices)]).tolist() == list(range(12))
    np.testing.assert_allclose(
        result.server_test_accuracy.mean("server").values, result.test_accuracy.values
    )
    for view, count in (("global", 3), ("personal", 12)):
        otafl.load_model(path, trial=1, view=view, device=count - 1)
        with pytest.raises(otafl.UserError, match=f"choose a device from 0 to {count - 1}"):
            otafl.load_model(path, trial=1, view=view, device=count)


def test_a_trial_stops_as_one() -> None:
    """When the mean over its servers reaches the target, all of them stop."""
    stop = {**tree()["training"], "rounds": 30, "stop_at": {"test_accuracy": 0.3}}
    keys = {"topology": CELLS, "training": stop, "trials": 2, "algorithm.learning_rate": 0.3}
    result = otafl.run(scenario(keys | {"transport": "ideal"}))
    ended = result.stop_round
    assert (ended < 30).all()
    for trial in range(2):
        at = int(ended[trial])
        own = result.test_accuracy.isel(trial=trial)
        assert float(own.sel(round=at)) >= 0.3
        assert (own.sel(round=slice(1, at - 1)) < 0.3).all()
        assert result.server_test_accuracy.isel(trial=trial).sel(round=at).notnull().all()
        if at < result["round"].values[-1]:
            assert own.sel(round=at + 1).isnull().all()
