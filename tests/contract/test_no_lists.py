"""No test of the contract and no table of a page lists components: what must be known of one, it
declares, so that adding one is a file, a word in the registry and a test.

A collection of examples says so in the line above it, `# examples: why these`; a table of a page
by `<!-- examples: why these -->`. What is said of examples must hold without a new component.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from otafl.core import registry

ROOT = Path(__file__).parents[2]
FILES = sorted(Path(__file__).parent.rglob("*.py"))
PAGES = sorted((ROOT / "docs").glob("*.md"))
MARK = re.compile(r"(?:#|<!--) examples: \w+ \w+ \w+")
NAMES = {table: set(registry.list_names(table)) - set(registry.TABLES) for table in registry.TABLES}


def listed(words: set[str]) -> bool:
    """Whether there are two components of one table among the words."""
    return any(len(words & names) > 1 for names in NAMES.values())


def collections(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    """The strings in each collection, and in each column of a collection of collections."""
    for node in ast.walk(tree):
        columns: list[list[ast.expr | None]] = []
        if isinstance(node, ast.Dict):
            columns = [[*node.keys], [*node.values]]
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            rows = [one.elts for one in node.elts if isinstance(one, ast.List | ast.Tuple)]
            width = max((len(row) for row in rows), default=0)
            columns = [
                [*node.elts],
                *([row[i] for row in rows if i < len(row)] for i in range(width)),
            ]
        for column in columns:
            values = {one.value for one in column if isinstance(one, ast.Constant)}
            yield node.lineno, {value for value in values if isinstance(value, str)}


def find_lists(text: str) -> list[int]:
    """The lines of collections that list components, without those that are said to be examples."""
    lines = text.splitlines()
    found = {line for line, words in collections(ast.parse(text)) if listed(words)}
    return sorted(line for line in found if not MARK.search("\n".join(lines[line - 2 : line])))


def find_tables(text: str) -> list[int]:
    """The lines of a page's tables whose first column lists components."""
    lines, found, first = text.splitlines(), [], 0
    words: set[str] = set()
    for place, line in enumerate([*lines, ""]):
        if line.startswith("|"):
            words = words or set()
            first = first or place + 1
            words |= set(re.findall(r"`([\w-]+)`", line.split("|")[1]))
        else:
            before = "\n".join(lines[max(first - 4, 0) : first])
            if listed(words) and not MARK.search(before):
                found.append(first)
            words, first = set(), 0
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tests_of_the_contract(path: Path) -> None:
    assert find_lists(path.read_text()) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_tables_of_pages(path: Path) -> None:
    assert find_tables(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "LONG = ('fedhm', 'heterofl')",  # examples: what is found
        "KEPT = {'scaffold': {'control'}, 'ditto': {'personal'}}",  # examples: what is found
        "CASES = [('power', 'ci'), ('power', 'tci')]",  # examples: what is found
    ],
)
def test_a_list_is_found(text: str) -> None:
    assert find_lists(text) == [1]
    assert find_lists(f"# examples: what they are for\n{text}") == []
    assert find_tables("| `ci` | a |\n|---|---|\n| `tci` | b |\n") == [1]
