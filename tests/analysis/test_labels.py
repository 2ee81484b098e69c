"""Labels in place of names in figures, tables and reports."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from rich.console import Console
from support.plot_bench import make_dataset

import otafl
from otafl.analysis.points import read_labels, write_labels
from otafl.analysis.summary import print_ends
from otafl.core.errors import UserError
from otafl.plots import curve_data, draw
from otafl.scenario import load_scenario

KEYS: dict[str, Any] = {
    "name": "labelled",
    "training": {"rounds": 1},
    "devices": {"count": 2},
    "model": {"name": "mlp", "hidden": [2]},
    "sweep": {"power.name": ["ci", "gbma"], "channel.snr_db": [0, 10]},
}
LABELS = {"ci": "inversion", "snr_db": "SNR [dB]", "test_accuracy": "accuracy", "absent": "none"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("labels") / "labelled.nc"
    otafl.run({**KEYS, "output": {"labels": LABELS}}, path)
    return path


@pytest.fixture(scope="module")
def labelled(file: Path) -> xr.Dataset:
    """The result with its own labels."""
    result = otafl.open_results(file)
    assert read_labels(result) == LABELS
    shown = write_labels(result, {}, LABELS)
    assert list(result["power"].values) == ["ci", "gbma"]
    assert "label" not in result["test_accuracy"].attrs
    return shown


def test_a_figure_has_labels_of_the_command_first() -> None:
    ds = make_dataset("snr_db", "power")
    own = {"test_accuracy": "accuracy", "power": "control", "gbma": "equal power"}
    others = {"snr_db": "SNR (dB)", "gbma": "not this", "absent": "nor this"}
    data = curve_data(write_labels(ds, own, others), "test_accuracy", "snr_db", "power")
    figure = draw(data, width=3.5)
    assert figure.axes[0].get_ylabel() == "accuracy"
    assert figure.axes[0].get_xlabel() == "SNR (dB)"
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "control"
    assert [text.get_text() for text in legend.get_texts()] == ["equal power", "tci(threshold=0.3)"]
    with pytest.raises(UserError, match="--label gmba: not in this result; did you mean 'gbma'"):
        write_labels(ds, {"gmba": "x"})


def test_show_has_labels_in_place_of_names(file: Path) -> None:
    console = Console(width=100, file=io.StringIO(), markup=False)
    print_ends(otafl.open_results(file), console, variables=["test_accuracy", "test_loss"])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    title = next(line for line in text.splitlines() if "SNR" in line)
    assert title.split()[:3] == ["power", "SNR", "[dB]"]
    assert "accuracy" in text
    assert "test accuracy" not in text
    assert "inversion" in text
    assert " ci " not in text


def test_two_names_cannot_have_the_same_text() -> None:
    labels = {"ci": "inversion", "tci": "inversion"}
    with pytest.raises(otafl.UserError, match="'ci' and 'tci' have the same text, 'inversion'"):
        load_scenario({**KEYS, "output": {"labels": labels}})
