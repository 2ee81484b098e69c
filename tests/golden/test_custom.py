"""docs/extending.md: its files, run as it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.pages import DOCS, read_lines, write_files
from support.programs import run

from otafl import open_results

OTAFL = Path(sys.executable).with_name("otafl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the document's blocks."""
    home = tmp_path_factory.mktemp("extending")
    assert write_files(DOCS / "extending.md", home) == [
        *("my_method.py", "my_feddyn.py", "my_channel.py"),
        *("fading.yaml", "my_power.py", "power.yaml", "my_queue.py"),
        *("my_model.py", "my_data.py", "my_partition.py", "my_codec.py", "my_csi.py"),
        *("my_selection.py", "my_server.py", "parts.yaml"),
        *("rings.yaml", "brought.py"),
    ]
    return home


def call(folder: Path, *command: str | Path) -> str:
    done = run(*command, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_commands(folder: Path) -> None:
    """As typed in the folder, by the console script, which does not look there by itself."""
    for line in read_lines(DOCS / "extending.md"):
        name, *rest = line.split()
        assert name == "otafl"
        call(folder, OTAFL, *rest)
    accuracy = open_results(folder / "results" / "rings.nc")["test_accuracy"].isel(trial=0)
    assert float(accuracy[-1]) > 0.7  # of three classes
    nmse = open_results(folder / "results" / "power")["aggregation_nmse"].isel(round=-1)
    names = ("cao_static", "quantile(share=0.2)", "ci")
    optimal, own, weakest = (float(nmse.mean("trial").sel(power=name)) for name in names)
    assert optimal < own < weakest
    for name in ("fading", "parts.nc"):
        assert (open_results(folder / "results" / name).test_accuracy.isel(round=-1) > 0.4).all()


@pytest.mark.slow
@pytest.mark.parametrize("program", ["brought.py"])
def test_from_python(folder: Path, program: str) -> None:
    printed = call(folder, program)
    assert 0.5 < float(printed) <= 1.0
