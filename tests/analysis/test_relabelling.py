"""Labels of a scenario in figures, tables and reports.

Mutations that make a test here fail: labels in the hash, a label of a name that is not drawn
refused, labels of the command ignored, values of numeric axes renamed, the caller's result changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import otafl
from otafl.analysis.relabelling import label_result, read_labels
from otafl.analysis.tables import build_grid, rename_texts
from otafl.plots.curves import curve_data
from otafl.plots.overviews import overview_data
from otafl.plots.relabel import rename_labels
from otafl.scenario import compute_scenario_hash, load_scenario

KEYS: dict[str, Any] = {
    "name": "labelled",
    "training": {"rounds": 1},
    "devices": {"count": 2},
    "model": {"name": "mlp", "hidden": [2]},
    "sweep": {"power.name": ["ci", "gbma"], "channel.snr_db": [0, 10]},
}
LABELS = {"ci": "inversion", "snr_db": "SNR [dB]", "test_accuracy": "accuracy", "absent": "none"}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    file: Path = tmp_path_factory.mktemp("labels") / "labelled.nc"
    otafl.run({**KEYS, "output": {"labels": LABELS}}, file)
    return otafl.open_results(file)


def test_result_has_the_labels(result: xr.Dataset) -> None:
    assert read_labels(result) == LABELS
    assert read_labels(xr.Dataset()) == {}
    assert read_labels(load_scenario({**KEYS, "output": {"labels": LABELS}})) == LABELS


def test_labels_do_not_change_the_hash() -> None:
    hashes = {
        compute_scenario_hash(load_scenario({**KEYS, **output}))
        for output in ({}, {"output": {"labels": LABELS}}, {"output": {"labels": {"ci": "x"}}})
    }
    assert len(hashes) == 1


def test_figure_shows_labels_and_those_of_the_command_first(result: xr.Dataset) -> None:
    data = curve_data(result, "test_accuracy", "snr_db", "power")
    drawn = rename_labels(data, {"gbma": "equal power"}, read_labels(result))
    assert list(drawn["power"].values) == ["inversion", "equal power"]
    assert drawn.attrs["y_label"] == "accuracy"
    own = rename_labels(data, {"ci": "mine"}, read_labels(result))
    assert list(own["power"].values) == ["mine", "gbma"]
    assert "inversion" in overview_data(result)[0]["power"].values


def test_report_gets_labels_in_place_of_values(result: xr.Dataset) -> None:
    shown = label_result(result, LABELS)
    assert list(shown["power"].values) == ["inversion", "gbma"]
    assert list(shown["snr_db"].values) == [0, 10]
    assert shown["snr_db"].attrs["long_name"] == "SNR [dB]"
    assert result["test_accuracy"].attrs["long_name"] != "accuracy"
    assert list(result["power"].values) == ["ci", "gbma"]


def test_table_shows_labels(result: xr.Dataset) -> None:
    table = build_grid(result, "test_accuracy", ["snr_db"], ["power"])
    shown = rename_texts(table, {}, read_labels(result))
    assert shown.rows == [("inversion",), ("gbma",)]


def test_two_names_cannot_have_the_same_text() -> None:
    labels = {"ci": "inversion", "tci": "inversion"}
    with pytest.raises(otafl.UserError, match="'ci' and 'tci' have the same text, 'inversion'"):
        load_scenario({**KEYS, "output": {"labels": labels}})
