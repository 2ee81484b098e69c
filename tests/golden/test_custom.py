"""docs/extending.md: its files, run as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from otafl import open_results

DOC = Path(__file__).parents[2] / "docs" / "extending.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OTAFL = Path(sys.executable).with_name("otafl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the document's blocks."""
    home = tmp_path_factory.mktemp("extending")
    names = []
    for language, text in BLOCK.findall(DOC.read_text()):
        if language != "sh":
            names.append(text.partition("\n")[0].removeprefix("# "))
            (home / names[-1]).write_text(text)
    assert names == ["my_model.py", "my_data.py", "rings.yaml", "rings.py"]
    return home


def call(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands(folder: Path) -> None:
    """As typed in the folder, by the console script, which does not look there by itself."""
    (commands,) = (text for language, text in BLOCK.findall(DOC.read_text()) if language == "sh")
    for line in commands.splitlines():
        name, *rest = line.split()
        assert name == "otafl"
        call(folder, OTAFL, *rest)
    result = open_results(folder / "results" / "rings.nc")
    accuracy = result["test_accuracy"].isel(trial=0)
    assert float(accuracy[-1]) > 0.7  # of three classes
    assert float(accuracy[0]) < 0.6


def test_from_python(folder: Path) -> None:
    printed = call(folder, sys.executable, "rings.py")
    assert 0.5 < float(printed) <= 1.0


def test_examples_are_ten_lines(folder: Path) -> None:
    """As the headings promise, without empty lines and the file's name."""
    for name in ("my_model.py", "my_data.py"):
        lines = [line for line in (folder / name).read_text().splitlines() if line.strip()]
        assert len(lines) - 1 <= 10
