"""Labels in place of names in figures, tables and reports."""

from __future__ import annotations

import pytest
from support.plot_bench import make_dataset

from otafl.analysis.points import write_labels
from otafl.core.errors import UserError
from otafl.plots import curve_data, draw


def test_a_figure_has_labels_in_place_of_names() -> None:
    ds = make_dataset("snr_db", "power")
    own = {"test_accuracy": "accuracy", "power": "control", "gbma": "equal power"}
    own["snr_db"] = "SNR (dB)"
    data = curve_data(write_labels(ds, own), "test_accuracy", "snr_db", "power")
    figure = draw(data, width=3.5)
    assert figure.axes[0].get_ylabel() == "accuracy"
    assert figure.axes[0].get_xlabel() == "SNR (dB)"
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "control"
    assert [text.get_text() for text in legend.get_texts()] == ["equal power", "tci(threshold=0.3)"]
    with pytest.raises(UserError, match="--label gmba: not in this result; did you mean 'gbma'"):
        write_labels(ds, {"gmba": "x"})
