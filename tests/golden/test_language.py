"""Names and docstrings are in the field's language (docs/glossary.md).

Ruff checks the form of docstrings. Here is what it cannot know: names that say nothing and words
that the glossary replaces. `make lint` runs this file.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("otafl", "scripts", "studies", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)
FOLDERS = {
    "/".join(parts): list(paths)
    for parts, paths in itertools.groupby(FILES, lambda path: path.relative_to(ROOT).parts[:2])
}

DIALECT = {
    "heard": "delivered, received",
    "came": "delivered",
    "told": "the noun of what is told",
    "dealt": "assigned",
    "reckon": "estimate, expect",
    "reckoned": "estimated, expected",
    "who": "devices, participants, transmitters",
    "whom": "devices, participants, transmitters",
    "whoever": "devices",
    "nobody": "is_empty, no_device",
    "somebody": "any_device",
    "everybody": "all_devices",
    "everyone": "all_devices",
}
"""Word that no name contains -> what to write instead."""

PARTICLES = frozenset(
    re.findall(
        r"\w+",
        "of at by about beside without within before after beyond outside with in out down up "
        "near apart alone again still ever never always late later twice less more most least "
        "alike both each every none other others own one it this that told kept came got made "
        "held known seen sent drawn found given shown said met lost hidden taken chosen written "
        "done gone left",
    )
)
"""Words that are no name of a function: it begins with a verb."""

VERBS_IN_ED = frozenset({"embed", "seed", "feed", "exceed", "proceed"})

FIRST_WORDS = frozenset({"Hold", "Say", "Tell", "Let", "Give"})
"""Verbs that no docstring begins with: they say nothing of what is computed."""


PHRASES = ("would do", "hardly meant")
"""Phrases that no message contains: it says what to do."""


def iterate_names(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Yield each defined name with its line, and whether it is a function's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno, False
        elif isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
            yield node.name, node.lineno, not any("property" in one for one in decorators)
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno, False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno, False


def find_fault(name: str, is_function: bool) -> str:
    """Say what is wrong with a name; empty if nothing is."""
    words = name.strip("_").lower().split("_")
    for word in words:
        if word in DIALECT:
            return f"'{word}' in '{name}': write {DIALECT[word]}"
    participle = words[0].endswith("ed") and words[0] not in VERBS_IN_ED
    if is_function and len(words) == 1 and (words[0] in PARTICLES or participle):
        return f"'{name}' does not begin with a verb"
    return ""


def find_faults(text: str) -> list[str]:
    """List the faults of names and messages in a file."""
    tree = ast.parse(text)
    faults = [
        f"{line}: {fault}"
        for name, line, is_function in iterate_names(tree)
        if (fault := find_fault(name, is_function))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [phrase for phrase in PHRASES if phrase in node.value]
            faults += [f"{node.lineno}: '{phrase}' in a text: say what to do" for phrase in found]
    return faults


def find_docstring_faults(text: str) -> list[str]:
    """List the docstrings in a file that begin with one of `FIRST_WORDS`."""
    faults = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
            first = (ast.get_docstring(node) or "").partition(" ")[0]
            if first in FIRST_WORDS:
                line = getattr(node, "lineno", 1)
                faults.append(
                    f"{line}: a docstring begins with '{first}'; write what it is or does"
                )
    return faults


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_and_docstrings_are_in_the_fields_language(folder: str) -> None:
    found = []
    for path in FOLDERS[folder]:
        text = path.read_text(encoding="utf-8")
        faults = find_faults(text)
        faults += find_docstring_faults(text) if folder.startswith("otafl") else []
        found += [f"{path.relative_to(ROOT)}:{fault}" for fault in faults]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("def heard(): ...", "'heard' in 'heard'"),
        ("def find(): who = 1", "'who' in 'who'"),
        ("def f(came): ...", "'came' in 'came'"),
        ("self.told = 1", "'told' in 'told'"),
        ("def of(): ...", "does not begin with a verb"),
        ("def rounded(): ...", "does not begin with a verb"),
        ('raise ValueError("got 1; 2 would do")', "'would do' in a text"),
        ('class A:\n    """Hold what a device has."""', "begins with 'Hold'"),
        ('"""Say what is wrong."""', "begins with 'Say'"),
    ],
)
def test_a_fault_is_found(text: str, fault: str) -> None:
    assert fault in "".join(find_faults(text) + find_docstring_faults(text))


def test_good_names_stay() -> None:
    text = '"""Channels."""\nclass A:\n    @property\n    def seen(self): ...\ndef embed(x): ...'
    assert find_faults(text) + find_docstring_faults(text) == []


def test_the_glossary_has_no_banned_word() -> None:
    """As a word of its own in the second column."""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| [^|]+ \| ([^|]+) \|", page, re.MULTILINE)
    assert len(words) > 50
    assert not {word for text in words for word in re.findall(r"\w+", text)} & DIALECT.keys()
