"""Curves against what it cost, by hand, and that the CSV shows the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.plot_bench import make_ramp, make_result, make_small_result, read_csv

from otafl.core.errors import UserError
from otafl.plots import curve_data, draw

pytestmark = pytest.mark.exact


def spenders() -> xr.Dataset:
    """Two policies, of which the second spends 1000 times as much; joules by device and cause."""
    accuracy = make_ramp("power")
    joules = np.ones((2, 2, 3, 4, 5)) * np.array([0.0, 1.0, 2.0])[:, None, None]
    joules = joules * np.array([1.0, 1000.0])[:, None, None, None, None]
    joules[:, 1] *= 3  # of the second trial
    joules[..., 3, :] = np.nan  # a device that is not there
    return make_result({"test_accuracy": accuracy, "device_energy_j": joules}, ["power"])


def test_joules_are_summed_over_devices_and_causes() -> None:
    data = curve_data(spenders(), "test_accuracy", "device_energy_j", "power")
    # 3 devices with 5 causes each, trials of 1 and 3 times as much
    np.testing.assert_allclose(data["at"][0], [0, 15 * 2, 15 * 4])
    np.testing.assert_allclose(data["at"][1], [0, 15 * 2000, 15 * 4000])
    said = "energy drawn so far, sum over devices and causes [J]"
    assert data.attrs["x_label"] == said
    np.testing.assert_allclose(data["mean"][0], [0.0015, 0.0025, 0.0035])
    np.testing.assert_allclose(data["std"][0], [0.003 / np.sqrt(2)] * 3)


def test_abscissae_over_decades_are_logarithmic_and_lose_their_zero(tmp_path: Path) -> None:
    data = curve_data(spenders(), "test_accuracy", "device_energy_j", "power")
    (ax,) = draw(data).axes
    assert ax.get_xscale() == "log"
    rows = read_csv(data, tmp_path)
    assert list(rows.columns[-4:]) == [
        *("device_energy_j", "test_accuracy", "test_accuracy_std", "trials")
    ]
    for line, (_, own) in zip(ax.get_lines(), rows.groupby("power", sort=False), strict=True):
        np.testing.assert_allclose(line.get_xdata(), own["device_energy_j"])
        np.testing.assert_allclose(line.get_ydata(), own["test_accuracy"])
    assert len(rows) == 4


def test_positions_of_a_joint_axis_are_spelled_out() -> None:
    ds = make_result({"test_accuracy": make_ramp("snr_db")}, ["snr_db"])
    power = ("zip", ["ci", "ci", "gbma"], {"long_name": "power policy"})
    ds = ds.rename_dims(snr_db="zip").drop_indexes("snr_db")
    ds = ds.assign_coords(zip=[0, 1, 2], power=power)
    figure = draw(curve_data(ds, "test_accuracy", "round", "zip"))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["0 dB, ci", "10 dB, ci", "20 dB, gbma"]
    with pytest.raises(UserError, match="power and snr_db move together in this result"):
        curve_data(ds, "test_accuracy", "snr_db", "power")
    picked = curve_data(ds, "test_accuracy", "round", sel={"zip": 1})
    np.testing.assert_allclose(picked["mean"], [0.0075, 0.0085, 0.0095])


def test_what_a_curve_cannot_be_drawn_against_is_explained() -> None:
    ds = make_small_result()
    with pytest.raises(UserError, match=r"is one for each device, .* take a dim, or one of test_a"):
        curve_data(ds, "test_accuracy", "device_own_test_accuracy", "snr_db")
    with pytest.raises(UserError, match="--x stop_round: is no value round by round, so test_acc"):
        curve_data(ds, "test_accuracy", "stop_round", "snr_db")
