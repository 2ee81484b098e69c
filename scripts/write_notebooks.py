"""Write the text notebooks of docs/notebooks as .ipynb files with their outputs.

A notebook of examples/notebooks has the cells of its text, after a cell that installs otafl where
it is missing, as on Colab. Cells run from top to bottom in a kernel of their own.

    python scripts/write_notebooks.py [first_steps ...] [--check]

With --check nothing runs and no file is written; the exit code is 1 if a file's cells differ from
the text or an output is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ROOT / "docs" / "notebooks"
OUT = ROOT / "examples" / "notebooks"
MAX_BYTES = 300_000
COLAB = "https://colab.research.google.com"

INSTALL = """\
# Installs otafl where it is missing, as on Colab: from a wheel in this folder, or by its name.
import importlib.util
from pathlib import Path

if importlib.util.find_spec("otafl") is None:
    source = next((str(wheel) for wheel in Path().glob("otafl-*.whl")), "otafl")
    %pip install -q $source"""

OPENING = """\
[Open in Colab]({colab}) ({how}), or in Jupyter. The first cell installs otafl where it is missing.
This file is made of [its text]({text}) by `scripts/write_notebooks.py`."""


def list_stems() -> list[str]:
    """List the names of the notebooks."""
    return sorted(path.stem for path in TEXTS.glob("*.md") if path.stem != "index")


def build_notebook(stem: str) -> nbformat.NotebookNode:
    """Build a notebook from its text, without outputs.

    Parameters
    ----------
    stem : str
        Name of the text in docs/notebooks.

    Returns
    -------
    nbformat.NotebookNode
        The cells of the text, after an opening and a cell that installs otafl.
    """
    from myst_nb.core.read import read_myst_markdown_notebook

    path = TEXTS / f"{stem}.md"
    read = read_myst_markdown_notebook(path.read_text(), path=path)
    title, _, rest = read.cells[0].source.partition("\n")
    cells = [
        new_markdown_cell(f"{title}\n\n{_write_opening(stem)}"),
        new_code_cell(INSTALL),
        new_markdown_cell(_to_plain_markdown(rest.strip())),
    ]
    for cell in read.cells[1:]:
        if cell.cell_type == "code":
            cells.append(new_code_cell(cell.source))
        else:
            cells.append(new_markdown_cell(_to_plain_markdown(cell.source)))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run a notebook's cells, and keep what they print and draw."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "matplotlibrc").write_text("svg.hashsalt: otafl\n")
        os.environ |= {"MPLCONFIGDIR": folder, "MATPLOTLIBRC": folder, "OMP_NUM_THREADS": "1"}
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=place).execute()
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell["metadata"] = {}
        if cell.cell_type == "code":
            cell["outputs"] = [_clean(one) for one in cell["outputs"] if not _is_stderr(one)]


def find_fault(stem: str) -> str:
    """Return what is wrong with the file of a notebook; empty if nothing is.

    Parameters
    ----------
    stem : str
        Name of the notebook.

    Returns
    -------
    str
        The fault.
    """
    file = OUT / f"{stem}.ipynb"
    if not file.is_file():
        return "does not exist"
    made, own = nbformat.read(file, as_version=4), build_notebook(stem)
    if [(one.cell_type, one.source) for one in made.cells] != [
        (one.cell_type, one.source) for one in own.cells
    ]:
        return "has other cells than its text"
    if not any("image/svg+xml" in one.get("data", {}) for one in _list_outputs(made)):
        return "has no picture"
    last = [cell for cell in made.cells if cell.cell_type == "code"][-1]
    if last.execution_count is None or not last.outputs:
        return "has a last cell without output"
    return f"has more than {MAX_BYTES} bytes" if file.stat().st_size > MAX_BYTES else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("notebooks", nargs="*", default=list_stems())
    parser.add_argument("--check", action="store_true", help="only compare cells")
    given = parser.parse_args()
    if given.check:
        faults = [f"{stem}.ipynb {why}" for stem in given.notebooks if (why := find_fault(stem))]
        sys.exit("\n".join(faults) or 0)
    OUT.mkdir(exist_ok=True)
    for stem in given.notebooks:
        notebook = build_notebook(stem)
        execute(notebook)
        nbformat.write(notebook, OUT / f"{stem}.ipynb")
        print(f"{stem}.ipynb: {(OUT / f'{stem}.ipynb').stat().st_size / 1e3:.0f} kB")


def _write_opening(stem: str) -> str:
    """Write the paragraph below the title."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = project.get("urls", {}).get("Repository", "").rstrip("/")
    colab, how = COLAB, "*File, Upload notebook*"
    if address.startswith("https://github.com/"):
        place = f"{address.removeprefix('https://github.com/')}/blob/main"
        colab, how = (
            f"{COLAB}/github/{place}/examples/notebooks/{stem}.ipynb",
            "from its repository",
        )
    return OPENING.format(colab=colab, how=how, text=f"../../docs/notebooks/{stem}.md")


def _to_plain_markdown(text: str) -> str:
    """Remove the site's roles, and write formulas and links as examples/notebooks needs them."""
    text = re.sub(r"\s*\(\{nb-download\}.*?\)", "", text, flags=re.DOTALL)
    text = re.sub(r"^```math\n(.*?)^```$", r"$$\n\1$$", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\((\w+)\.md\)", r"](\1.ipynb)", text)
    text = re.sub(r"\]\(\.\./\.\./", "](../../", text)
    return re.sub(r"\]\(\.\./(?!\.\./)", "](../../docs/", text)


def _is_stderr(output: Any) -> bool:
    return bool(output.get("name") == "stderr")


def _clean(output: Any) -> Any:
    """Remove what differs from run to run: dates of pictures."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        data["image/svg+xml"] = re.sub(
            r"\s*<dc:date>.*?</dc:date>", "", data["image/svg+xml"], flags=re.DOTALL
        )
    output.pop("transient", None)
    return output


def _list_outputs(notebook: Any) -> list[Any]:
    return [one for cell in notebook.cells for one in cell.get("outputs", [])]


if __name__ == "__main__":
    main()
