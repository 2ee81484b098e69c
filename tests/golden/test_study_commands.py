"""The commands and files that studies name exist: on their pages, in headers of scenarios and in
docstrings of scripts.
"""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.scenarios import SCENARIO_FILES

ROOT = Path(__file__).parents[2]

FILES = sorted(
    file for file in (ROOT / "studies").rglob("*") if file.suffix in {".md", ".py", ".yaml"}
)

NAMES = {file.stem for file in SCENARIO_FILES}

FOLDERS = "scenarios|scripts|benchmarks|examples|studies"

PLACE = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w*/.-]*\w(?![\w*/.,{{}}$_-])")

SWEPT = re.compile(r"otafl (?:sweep|run|check) ([\w./-]+\.yaml)")

MODULE = re.compile(r"python3? -m (studies[\w.]*\w)")

pytestmark = pytest.mark.exact


def find_faults(text: str) -> list[str]:
    """Return what a text names and does not exist, or cannot be called so; words that a shell
    would expand are left out."""
    text = re.sub(r"\s*\\?\n(?:# ?)?\s*", " ", text)  # one line, as a shell reads it
    text = text.replace("studies/NAME", "studies/field").replace("studies.NAME", "studies.field")
    places = [*PLACE.findall(text), *SWEPT.findall(text)]
    faults = [word for word in places if not list(ROOT.glob(word.rstrip(".")))]
    faults += [module for module in MODULE.findall(text) if not has_module(module)]
    faults += re.findall(r"python3? studies/\S+", text)
    named = re.findall(r"(?<![\w/*$}.])\w+\.yaml\b", text)
    return faults + [name for name in named if Path(name).stem not in NAMES]


def has_module(name: str) -> bool:
    """Return whether a module can be run."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_what_studies_name_exists() -> None:
    faults = {}
    for file in FILES:
        text = file.read_text()
        if file.suffix == ".py":
            text = ast.get_docstring(ast.parse(text)) or ""
        if found := find_faults(text):
            faults[str(file.relative_to(ROOT))] = found
    assert faults == {}
