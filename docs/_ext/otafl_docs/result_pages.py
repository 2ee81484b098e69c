"""The pages of `results/` and the changelog as pages of the site."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = "measured"

COMMANDS = re.compile(r"(?<=\n\n)(?:    \S.*\n(?:    .*\n)*)")
"""An indented block; they are commands for a shell."""
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def pages() -> Iterator[tuple[str, str]]:
    """Path without suffix, and text, of every page."""
    for file in sorted((ROOT / "results").glob("*.md")):
        text = COMMANDS.sub(_fenced, LINK.sub(_moved, file.read_text()))
        yield f"{FOLDER}/{file.stem}", titled(re.sub(r"(?m)^\|.*", _unbroken, text))
    yield "changelog", titled(LINK.sub(_from_root, (ROOT / "CHANGELOG.md").read_text()))


def _unbroken(row: re.Match[str]) -> str:
    """A row of a table whose numbers stay in a line with their spread, where there is room."""
    return row[0].replace(" ± ", "\u00a0±\u00a0") if row[0].count("|") <= 8 else row[0]


def _fenced(match: re.Match[str]) -> str:
    return f"```sh\n{textwrap.dedent(match[0])}```\n"


def _moved(match: re.Match[str]) -> str:
    """A link of a file in results/, seen from docs/reference/measured/."""
    target = match[2]
    if target.startswith("../docs/"):
        target = "/" + target.removeprefix("../docs/")
    elif target.startswith("../"):
        target = "../../" + target
    elif not target.endswith(".md"):
        target = f"../../../results/{target}"
    return match[1] + target + match[3]


def _from_root(match: re.Match[str]) -> str:
    """A link of a file in the root, seen from docs/reference/."""
    target = match[2]
    if target.startswith("docs/"):
        target = "/" + target.removeprefix("docs/")
    elif re.fullmatch(r"results/\w+\.md", target):
        target = f"/reference/{FOLDER}/{target.removeprefix('results/')}"
    else:
        target = f"../../{target}"
    return match[1] + target + match[3]


def in_site(text: str) -> str:
    """A page of docs/ whose links to results and to the changelog lead to the site's pages."""
    text = text.replace("](../CHANGELOG.md)", "](/reference/changelog.md)")
    moved = rf"](/reference/{FOLDER}/\1.md\2)"
    return titled(re.sub(r"\]\((?:\.\./)+results/(\w+)\.md(#[^)]*)?\)", moved, text))


def titled(text: str) -> str:
    """The text with links that are called by their file (`[time.md](time.md)`) called by the title
    that they lead to."""
    return re.sub(r"\[[\w/]+\.md\](?=\([^)\s]+\.md\))", "[]", text)
