"""A working folder that others write to: nothing in it directs otafl's libraries or stops otafl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exact


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


def test_only_the_module_that_a_scenario_names_is_imported(tmp_path: Path) -> None:
    """`python -m` puts the working folder first; otafl searches it last, and only for that one."""
    for name in ("numpy", "yaml", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the code of a stranger')")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "s.yaml").write_text("name: s\ndata: digits\nmodel: mine:model\n")
    command = ("-m", "otafl", "check", "s.yaml")
    said = run_python(tmp_path, *command, PYTHONPATH=str(Path(__file__).parents[2]), expected=2)
    assert "my own code ran, the working folder is last: True" in said
