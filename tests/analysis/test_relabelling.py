"""Labels of a scenario in figures, tables and reports."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from rich.console import Console

import otafl
from otafl import cli
from otafl.analysis.relabelling import label_result, read_labels
from otafl.analysis.summary import print_ends
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


def test_show_has_labels_in_place_of_names(result: xr.Dataset) -> None:
    console = Console(width=100, file=io.StringIO(), markup=False)
    print_ends(result, console, variables=["test_accuracy", "test_loss"])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    title = next(line for line in text.splitlines() if "test loss" in line)
    assert title.split()[:3] == ["power", "SNR", "[dB]"]
    assert "test accuracy" not in title
    assert "accuracy" in title
    assert "inversion" in text
    assert " ci " not in text


def test_compare_has_labels_in_place_of_names(result: xr.Dataset, tmp_path: Path) -> None:
    file, out = tmp_path / "labelled.nc", tmp_path / "pairs.txt"
    result.to_netcdf(file)
    with pytest.raises(SystemExit) as left:
        cli.main(["compare", str(file), "--axis", "power", "--baseline", "gbma", "-o", str(out)])
    assert not left.value.code
    caption, _, title, *_, row = out.read_text().splitlines()
    assert caption.startswith("Differences of accuracy from power gbma")
    assert title.startswith("power      SNR [dB]")
    assert row.startswith("inversion  10")


def test_two_names_cannot_have_the_same_text() -> None:
    labels = {"ci": "inversion", "tci": "inversion"}
    with pytest.raises(otafl.UserError, match="'ci' and 'tci' have the same text, 'inversion'"):
        load_scenario({**KEYS, "output": {"labels": labels}})
