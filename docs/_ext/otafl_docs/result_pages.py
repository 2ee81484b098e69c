"""The pages of results, benchmarks and studies, and the changelog, as pages of the site."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = "measured"

COMMANDS = re.compile(r"(?<=\n\n)(?:    \S.*\n(?:    .*\n)*)")
"""An indented block; they are commands for a shell."""
PAGE = r"(?:(?:results|benchmarks)/\w+|studies/(?:\w+/)?\w+)\.md"
"""A file of the checkout that has a page of the site."""
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def pages() -> Iterator[tuple[str, str]]:
    """Path without suffix, and text, of every page."""
    measured = [*(ROOT / "results").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    for file in [*measured, *(ROOT / "studies").rglob("*.md")]:
        moved = _relink(file.read_text(), file.parent, ROOT / "docs" / "reference" / FOLDER)
        text = COMMANDS.sub(_fenced, moved)
        yield get_page(file), titled(re.sub(r"(?m)^\|.*", _unbroken, text))
    changes = (ROOT / "CHANGELOG.md").read_text()
    yield "changelog", titled(_relink(changes, ROOT, ROOT / "docs" / "reference"))


def get_page(file: Path) -> str:
    """The page of the site, below `reference/`, of a file of results, of a benchmark or a study."""
    if file.parent.name == "benchmarks":  # some are called as a study is
        return f"{FOLDER}/benchmarks_{file.stem}"
    if "studies" not in file.parts[-3:]:
        return f"{FOLDER}/{file.stem}"
    return f"{FOLDER}/{file.parent.name}{'' if file.stem == 'README' else f'_{file.stem}'}"


def _unbroken(row: re.Match[str]) -> str:
    """A row of a table whose numbers stay in a line with their spread, where there is room."""
    return row[0].replace(" ± ", "\u00a0±\u00a0") if row[0].count("|") <= 8 else row[0]


def _fenced(match: re.Match[str]) -> str:
    return f"```sh\n{textwrap.dedent(match[0])}```\n"


def _relink(text: str, folder: Path, site: Path) -> str:
    """The text of a file in a folder with links as from a folder of the site."""

    def relink(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        return f"{match[1]}{_find_target(target, site)}{match[3]}"

    return LINK.sub(relink, text)


def _find_target(target: Path, site: Path) -> str:
    """A link to a file of the checkout from a folder of the site: to its page, if it has one."""
    path = target.relative_to(ROOT)
    if path.suffix == ".md" and path.parts[0] == "docs":
        return f"/{path.relative_to('docs')}"
    if path.suffix == ".md" and path.parts[0] in ("results", "benchmarks", "studies"):
        return f"/reference/{get_page(target)}.md"
    return os.path.relpath(target, site)


def _find_page(match: re.Match[str]) -> str:
    """A link of a page of docs/ to a file that has a page."""
    return f"](/reference/{get_page(ROOT / match[1])}.md"


def in_site(text: str) -> str:
    """A page of docs/ whose links to results and to the changelog lead to the site's pages."""
    text = text.replace("](../CHANGELOG.md)", "](/reference/changelog.md)")
    linked = re.sub(rf"\]\((?:\.\./)+({PAGE})", _find_page, text)
    return titled(linked)


def titled(text: str) -> str:
    """The text with links that are called by their file (`[time.md](time.md)`) called by the title
    that they lead to."""
    return re.sub(r"\[[\w/]+\.md\](?=\([^)\s]+\.md\))", "[]", text)
