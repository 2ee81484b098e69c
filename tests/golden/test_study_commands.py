"""The commands and files that studies name exist: on their pages, in headers of scenarios and in
docstrings of scripts.
"""

from __future__ import annotations

import ast
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.scenarios import SCENARIO_FILES

ROOT = Path(__file__).parents[2]
FILES = sorted(
    file for file in (ROOT / "studies").rglob("*") if file.suffix in {".md", ".py", ".yaml"}
)
NAMES = {file.stem for file in SCENARIO_FILES}
LOOP = re.compile(r"\bfor (\w+) in ([^;]+); ?do (.*?);? ?done")
BRACES = re.compile(r"\{([^{}$]*)\}")
FOLDERS = "scenarios|scripts|benchmarks|examples|studies"
PLACE = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w*/.{{}},-]*\w\}}?")
RESULT = re.compile(r"(?<![\w/.-])results/([\w*{},]+)(?![\w.*-])")

pytestmark = pytest.mark.exact


def join_lines(text: str) -> str:
    """Return the text in one line, without marks of comments and of continued lines."""
    return re.sub(r"\s*\\?\n(?:# ?)?\s*", " ", text)


def expand_braces(word: str) -> list[str]:
    """Return the words that a shell makes of one with braces."""
    found = BRACES.search(word)
    if not found:
        return [word]
    start, end = word[: found.start()], word[found.end() :]
    return [one for choice in found[1].split(",") for one in expand_braces(f"{start}{choice}{end}")]


def expand_loops(text: str) -> str:
    """Return the text with each loop of a shell written out."""

    def write_out(found: re.Match[str]) -> str:
        variable, words, body = found.groups()
        values = [value for word in shlex.split(words) for value in expand_braces(word)]
        return "; ".join(body.replace(f"${variable}", value) for value in values)

    return LOOP.sub(write_out, text)


def find_faults(text: str) -> list[str]:
    """Return what a text names and does not exist, or cannot be called so."""
    text = expand_loops(join_lines(text)).replace("studies/NAME", "studies/field")
    text = text.replace("studies.NAME", "studies.field")
    words = {one for word in PLACE.findall(text) for one in expand_braces(word.rstrip("."))}
    faults = [word for word in words if not list(ROOT.glob(word))]
    modules = re.findall(r"python3? -m (studies[\w.]*\w)", text)
    faults += [module for module in modules if not has_module(module)]
    faults += re.findall(r"python3? studies/\S+", text)
    swept = re.findall(r"otafl (?:sweep|run|check) (\S+\.yaml)", text)
    faults += [one for word in swept for one in expand_braces(word) if not list(ROOT.glob(one))]
    named = re.findall(r"(?<![\w/*$}.])\w+\.yaml\b", text)
    faults += [name for name in named if Path(name).stem not in NAMES]
    results = {one for word in RESULT.findall(text) for one in expand_braces(word)}
    known = [name for name in results if any(Path(stem).match(name) for stem in NAMES)]
    return faults + [f"results/{name}" for name in sorted(results - set(known))]


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
