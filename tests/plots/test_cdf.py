"""Distributions over devices by hand, and that the figure and the CSV show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.plot_bench import make_ramp, make_result, make_small_result, read_csv

from otafl.core.errors import UserError
from otafl.plots import cdf_data, draw

pytestmark = pytest.mark.exact


def test_distribution_by_hand(tmp_path: Path) -> None:
    own = np.full((2, 3, 4), np.nan)
    own[:, -1] = [[0.2, 0.4, 0.4, 0.8], [0.4, 0.6, np.nan, np.nan]]
    ds = make_result({"device_own_test_accuracy": own, "test_accuracy": make_ramp()})
    data = cdf_data(ds, "device_own_test_accuracy")
    np.testing.assert_allclose(data["value"], [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(data["share"], np.array([1, 4, 5, 6]) / 6)
    assert (int(data["devices"]), int(data["trials"])) == (6, 2)
    (ax,) = draw(data).axes
    (line,) = ax.get_lines()
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_allclose(line.get_xdata(), [0.2, 0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(line.get_ydata(), np.array([0, 1, 4, 5, 6]) / 6)
    rows = read_csv(data, tmp_path)
    np.testing.assert_allclose(rows["device_own_test_accuracy"], data["value"])
    np.testing.assert_allclose(rows["share"], data["share"])


def test_any_other_variable_is_distributed_over_trials(tmp_path: Path) -> None:
    """At the end of each trial, for each hue; a trial that did not survive counts nowhere."""
    accuracy = np.full((2, 3, 3), 0.1)
    accuracy[:, :, -1] = [[0.7, 0.5, 0.7], [0.9, 0.8, np.nan]]
    ds = make_result({"test_accuracy": accuracy}, ["device_count"], trials=3)
    data = cdf_data(ds, "test_accuracy", "device_count")
    np.testing.assert_allclose(data["value"].sel(device_count=2).dropna("step"), [0.5, 0.7])
    np.testing.assert_allclose(data["share"].sel(device_count=2).dropna("step"), [1 / 3, 1.0])
    np.testing.assert_array_equal(data["trials"], [3, 2])
    assert "devices" not in data
    assert data["share"].attrs["label"] == "share of trials"
    (ax,) = draw(data).axes
    assert len(ax.get_lines()) == 2
    assert read_csv(data, tmp_path)["test_accuracy"].size == 4
    assert cdf_data(ds, hue="device_count").attrs["x"] == "test_accuracy"  # the main one


def test_devices_that_are_picked_have_no_distribution() -> None:
    said = "--x device_own_test_accuracy: its distribution is over devices, and needs all of them"
    with pytest.raises(UserError, match=said):
        cdf_data(make_small_result(), "device_own_test_accuracy", sel={"device": 0, "snr_db": 0})
