"""Notebooks with outputs have the cells of their texts, small pictures, and links that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("myst_nb")

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "scripts" / "write_notebooks.py"))
OUT: Path = TOOL["OUT"]


@pytest.mark.parametrize("stem", TOOL["list_stems"]())
def test_a_notebook_is_its_text_with_outputs(stem: str) -> None:
    assert TOOL["find_fault"](stem) == ""
    notebook = nbformat.read(OUT / f"{stem}.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[0].source == TOOL["INSTALL"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = {one.output_type for cell in code for one in cell.outputs}
    assert "error" not in kinds
    text = (OUT / f"{stem}.ipynb").read_text()
    assert "nb-download" not in text
    for link in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", text):
        assert (OUT / link).is_file(), link
