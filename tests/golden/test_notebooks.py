"""The notebooks of docs/notebooks run from top to bottom, each in a program of its own.

They run in the shell of IPython that a kernel of Jupyter has.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.programs import run

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.md") if path.stem != "index")


SHELL = """
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        "Do nothing: the figures are inline."

shell = Shell.instance()
shown = []
for cell in json.loads(Path(sys.argv[1]).read_text()):
    with capture_output() as captured:
        done = shell.run_cell(cell)
    done.raise_error()
    shown += [list(one.data) for one in captured.outputs]
    shown.append(list(shell.display_formatter.format(done.result)[0]))
print(json.dumps(shown))
"""
"""Run the cells of a file, and print the types of each output."""


def run_in_shell(notebook: Any, folder: Path, file: Path) -> list[list[str]]:
    """Run the cells of a notebook, by way of a file; return the types of each output."""
    pytest.importorskip("matplotlib_inline")
    file.write_text(json.dumps([one.source for one in notebook.cells if one.cell_type == "code"]))
    done = run("-c", SHELL, file, cwd=folder)
    assert done.returncode == 0, done.stderr
    shown: list[list[str]] = json.loads(done.stdout)
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_its_figures(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = pytest.importorskip("myst_nb.core.read")
    notebook = reading.read_myst_markdown_notebook(path.read_text(), path=path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path / "empty"
    folder.mkdir()
    shown = run_in_shell(notebook, folder, tmp_path / "cells.json")
    figures = [types for types in shown if "image/svg+xml" in types]
    drawn = re.findall(r"^(?:draw|plot_\w+)\(|^figure, axes = ", path.read_text(), re.MULTILINE)
    assert len(figures) == len(drawn) > 0
    assert not list(folder.iterdir())
