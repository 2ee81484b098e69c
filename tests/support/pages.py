"""Code blocks of pages."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Language and text."""


def read_lines(page: Path) -> list[str]:
    """Return the lines of a page's blocks for a shell."""
    blocks = BLOCK.findall(page.read_text())
    return "".join(text for language, text in blocks if language == "sh").splitlines()


def write_files(page: Path, folder: Path) -> list[str]:
    """Write the files whose names blocks begin with, `# NAME`, and return the names."""
    names = []
    for language, text in BLOCK.findall(page.read_text()):
        first = text.partition("\n")[0]
        if language != "sh" and first.startswith("# "):
            names.append(first.removeprefix("# "))
            (folder / names[-1]).write_text(text)
    return names
