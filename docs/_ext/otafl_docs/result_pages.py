"""The pages of `results/` as pages of the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = "measured"

LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def pages() -> Iterator[tuple[str, str]]:
    """Path without suffix, and text, of every page."""
    for file in sorted((ROOT / "results").glob("*.md")):
        yield f"{FOLDER}/{file.stem}", LINK.sub(_moved, file.read_text())


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


def in_site(text: str) -> str:
    """A page of docs/ whose links to files of results/ lead to the site's pages of them."""
    return re.sub(
        r"\]\((?:\.\./)+results/(\w+)\.md(#[^)]*)?\)", rf"](/reference/{FOLDER}/\1.md\2)", text
    )
