"""Names of one's own in figures, and short names of variables."""

from __future__ import annotations

import pytest
from support.swept_bench import make_dataset

from otafl.core.errors import UserError
from otafl.plots import curve_data, draw
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
