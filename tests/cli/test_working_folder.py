"""A working folder that others write to: nothing in it directs otafl's libraries or stops otafl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otafl.cli import main

pytestmark = pytest.mark.exact

DRAWN = """
import matplotlib
from otafl.cli.app import ignore_matplotlibrc

with ignore_matplotlibrc():
    print(*(matplotlib.rcParams[name] for name in ("text.usetex", "lines.linewidth")))
print(matplotlib.rcParams["text.usetex"])
"""


MINE = """
import os, sys

def model(input_shape, classes):
    last = sys.path.index(os.getcwd()) == len(sys.path) - 1
    raise ValueError(f"my own code ran, the working folder is last: {last}")
"""


def run_python(folder: Path, *arguments: str, expected: int = 0, **variables: str) -> str:
    """Return what a program says in a folder."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(("config", "width"), [("empty", "1.5"), ("config", "3.0")])
def test_figures_follow_the_users_own_matplotlibrc(config: str, width: str, tmp_path: Path) -> None:
    """The default width is 1.5; the process that calls otafl keeps its settings."""
    for folder, text in {
        "work": "text.usetex: True\nlines.linewidth: 9",
        "config": "lines.linewidth: 3",
    }.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "matplotlibrc").write_text(text)
    said = run_python(tmp_path / "work", "-c", DRAWN, MPLCONFIGDIR=str(tmp_path / config))
    assert said.split() == ["False", width, "True"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b"text.color: \xe9"), "no text in UTF-8"),
        (os.mkfifo, "named pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "device"),
    ],
)
def test_a_matplotlibrc_that_cannot_be_read_is_one_sentence(
    make, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "matplotlibrc")
    with pytest.raises(SystemExit) as left:
        main(["list"])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("otafl: error: matplotlibrc: ")
    assert reason in said


def test_only_the_module_that_a_scenario_names_is_imported(tmp_path: Path) -> None:
    """`python -m` puts the working folder first; otafl searches it last, and only for that one."""
    for name in ("numpy", "yaml", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the code of a stranger')")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "s.yaml").write_text("name: s\ndata: digits\nmodel: mine:model\n")
    command = ("-m", "otafl", "check", "s.yaml")
    said = run_python(tmp_path, *command, PYTHONPATH=str(Path(__file__).parents[2]), expected=2)
    assert "my own code ran, the working folder is last: True" in said
