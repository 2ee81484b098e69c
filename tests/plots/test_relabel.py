"""Names of one's own in figures, and short names of variables."""

from __future__ import annotations

import pytest
import xarray as xr
from support.swept_bench import make_dataset

from otafl.core.errors import UserError
from otafl.plots import curve_data, draw, pareto_data
from otafl.plots.pareto import _name_front
from otafl.plots.relabel import rename_labels, shorten_labels


def test_variables_axes_and_values_are_renamed() -> None:
    data = curve_data(make_dataset("snr_db", "power"), "test_accuracy", "snr_db", "power")
    labels = {"test_accuracy": "accuracy", "power": "control", "gbma": "equal power"}
    renamed = rename_labels(data, labels | {"snr_db": "SNR (dB)"})
    assert renamed.attrs["y_label"] == "accuracy"
    assert renamed.attrs["x_label"] == "SNR (dB)"
    assert renamed["power"].values.tolist() == ["equal power", "ci"]
    assert data["power"].values.tolist() == ["gbma", "ci"]
    legend = draw(renamed, width=3.5).legends[0]
    assert legend.get_title().get_text() == "control"
    assert [text.get_text() for text in legend.get_texts()] == ["equal power", "ci"]
    with pytest.raises(UserError, match="--label gmba: not drawn here; did you mean 'gbma'"):
        rename_labels(data, {"gmba": "x"})


def test_short_names_keep_units_and_names_of_ones_own() -> None:
    data = curve_data(make_dataset("snr_db"), "airtime_s", "snr_db")
    assert shorten_labels(data).attrs["y_label"] == "airtime [s]"
    assert shorten_labels(data).attrs["x_label"] == data.attrs["x_label"]
    named = rename_labels(data, {"airtime_s": "seconds"})
    assert shorten_labels(named).attrs["y_label"] == "seconds"


def make_joint() -> xr.Dataset:
    """Result along a zip axis of policies, samples and a batch size that is the same for all."""
    along = {"power": ["gbma", "ci", "ci"], "samples": [5, 12, 12], "batch": [2, 2, 2]}
    ds = make_dataset("snr_db").rename_dims(snr_db="zip").drop_vars("snr_db")
    coords = {name: ("zip", values) for name, values in along.items()}
    return ds.assign_coords(zip=[0, 1, 2], **coords, level=("zip", [0, 0, 10], {"units": "dB"}))


def test_points_of_a_front_are_named_and_renamed() -> None:
    data = pareto_data(make_joint(), "test_accuracy", "airtime_s")
    names = ["gbma, samples 5, 0 dB", "ci, samples 12, 0 dB", "ci, samples 12, 10 dB"]
    assert data["zip"].values.tolist() == names
    labels = {"gbma": "ci", "ci": "inversion", "10 dB": "near", names[1]: "far"}
    renamed = rename_labels(data, labels)["zip"].values.tolist()
    assert renamed == ["ci, samples 5, 0 dB", "far", "inversion, samples 12, near"]
    with pytest.raises(UserError, match="--label sample: not drawn here"):
        rename_labels(data, {"sample": "x"})


def test_axes_of_points_keep_their_units() -> None:
    data = pareto_data(make_dataset("snr_db", "power"), "test_accuracy", "airtime_s")
    renamed = rename_labels(data, {"snr_db": "SNR [dB]", "ci": "inversion"}, {"batch": "left out"})
    data = renamed.assign(front=renamed["front"].isin([True, False]))  # all points are named
    drawn = {name for _, _, name in _name_front(data)}
    assert drawn == {f"SNR {v} dB, {p}" for v in (0, 10, 20) for p in ("gbma", "inversion")}
