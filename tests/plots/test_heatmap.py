"""What heat maps draw, number by number, and that the CSV shows it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from support.plot_bench import AXES, make_ramp, make_result, make_small_result, read_csv

from otafl.core.errors import UserError
from otafl.plots import draw, heatmap_data

pytestmark = pytest.mark.exact


def test_heat_map_has_each_value_in_its_cell(tmp_path: Path) -> None:
    ds = make_result({"test_accuracy": make_ramp("snr_db", "device_count", "power")}, list(AXES))
    data = heatmap_data(ds, "test_accuracy", "device_count", "snr_db", "power")
    assert data["mean"].dims == ("power", "snr_db", "device_count")
    figure = draw(data)
    for i, ax in enumerate(figure.axes[:2]):
        assert [text.get_text() for text in ax.get_xticklabels()] == ["2", "4"]
        written = {text.get_position(): float(text.get_text()) for text in ax.texts}
        for (row, snr), (column, count) in itertools.product(
            enumerate((0, 10, 20)), enumerate((2, 4))
        ):
            trials = ds["test_accuracy"].sel(snr_db=snr, device_count=count).isel(power=i, round=-1)
            assert written[(column, row)] == pytest.approx(float(trials.mean()), rel=0.005)
            assert float(data["mean"][i, row, column]) == pytest.approx(float(trials.mean()))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0", "10", "20"]
    assert "test accuracy" in figure.axes[2].get_ylabel()
    assert figure.axes[0].get_xlabel() == "devices in the population"
    assert figure.axes[0].get_ylabel() == "normalised SNR [dB]"
    rows = read_csv(data, tmp_path)
    assert len(rows) == 12
    one = rows[(rows["snr_db"] == 10) & (rows["device_count"] == 4) & (rows["power"] == "gbma")]
    assert one["test_accuracy"].item() == pytest.approx(0.0395)
    assert one["test_accuracy_std"].item() == pytest.approx(0.003 / np.sqrt(2))


def test_heat_map_takes_the_free_axes_and_hatches_what_is_missing(tmp_path: Path) -> None:
    ds = make_result({"test_accuracy": make_ramp("snr_db", "power")}, ["snr_db", "power"])
    ds["test_accuracy"][2, 1] = np.nan
    data = heatmap_data(ds, "test_accuracy")
    assert data["mean"].dims == ("power", "snr_db")
    ax = draw(data).axes[0]
    assert len(ax.texts) == 5
    assert ax.patch.get_hatch()
    assert len(read_csv(data, tmp_path)) == 5
    over_rounds = heatmap_data(ds, "test_accuracy", "round", sel={"power": "gbma"})
    np.testing.assert_allclose(over_rounds["mean"].sel(snr_db=10, round=5), 0.0145)


def test_one_axis_is_too_few() -> None:
    said = "a heat map needs two axes; those of test_accuracy with several values: snr_db"
    with pytest.raises(UserError, match=said):
        heatmap_data(make_small_result(), "test_accuracy")
