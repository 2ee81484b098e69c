"""A study's page begins with what a reader wants: the question, one figure, a few answers with
their numbers, and two commands, in at most 250 words. All else is below "Details".
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "studies").glob("*/README.md"))
MOST_WORDS = 250
CODE = re.compile(r"^```\n.*?^```$|(?:^ {4}\S.*\n)+", re.DOTALL | re.MULTILINE)
"""Commands, between fences or indented."""

pytestmark = pytest.mark.exact


def read_first_screen(path: Path) -> str:
    """Return what stands before the details."""
    text = path.read_text()
    assert "\n## Details\n" in text, "what is not the answer goes below '## Details'"
    screen = text.partition("\n## Details\n")[0]
    return re.sub(r"<!-- .*? -->", "", screen)


def count_words(text: str) -> int:
    """Count the words that a reader sees; commands and the addresses of links are none."""
    text = re.sub(r"!\[.*?\]\(.*?\)", "", CODE.sub("", text))
    return len(re.sub(r"\]\(.*?\)", "", text).split())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.parent.name)
def test_one_screen(path: Path) -> None:
    screen = read_first_screen(path)
    before, picture, _ = screen.partition("![")
    assert picture
    assert "?" in before, "the title or the first paragraph asks the question"
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", screen)
    assert len(pictures) == 1
    assert (path.parent / pictures[0]).is_file()
    assert 3 <= len(re.findall(r"^(?:-|\d\.) \*\*", screen, flags=re.MULTILINE)) <= 5
    commands = CODE.findall(screen)
    assert len(commands) == 1
    assert len(commands[0].strip("`\n").splitlines()) == 2
    assert count_words(screen) <= MOST_WORDS
