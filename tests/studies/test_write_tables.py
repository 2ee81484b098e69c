"""Marked tables of the pages of results equal what the studies' scripts print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from studies.common import write_tables

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "studies").glob("*/*.md"), *(ROOT / "docs").glob("*.md")]
PAGES = sorted(path for path in FILES if "<!-- tables: " in path.read_text())
SHARING: dict[str, list[Path]] = {}
"""Last command of a page -> the pages, which are compared with one run of their commands."""
for page in PAGES:
    SHARING.setdefault(write_tables.COMMAND.findall(page.read_text())[-1], []).append(page)
PICTURES = {"fedrlr": 8, "field": 1}
"""How many pictures the commands of a page draw."""
PRINTED = "\nfirst\n\n| a |\n|---|\n| 1 |\n\n| b |\n|---|\n| 2 |\nnote\n\nother\n\n| c |\n|---|\n"


def name_pages(pages: list[Path]) -> str:
    return "+".join(f"{path.parent.name}-{path.stem}" for path in pages)


def remove_number(title: str) -> str:
    """Remove the number of a title that a script prints again."""
    return re.sub(r" \(\d+\)$", "", title)


def test_tables_are_collected_by_title() -> None:
    tables = write_tables.collect_tables(PRINTED)
    assert list(tables) == ["first", "first (2)", "other"]
    assert tables["first"] == "| a |\n|---|\n| 1 |\n"
    assert tables["first (2)"] == "| b |\n|---|\n| 2 |\n"


def test_marked_tables_are_replaced_and_other_text_is_kept() -> None:
    page = "Text\n\n<!-- table: other -->\nold\n<!-- end table -->\n\n| c | kept |\n"
    filled = write_tables.fill_page(page, write_tables.collect_tables(PRINTED))
    assert filled == page.replace("old\n", "| c |\n|---|\n")


def test_every_table_is_written_below_its_title() -> None:
    page = "Text\n\n<!-- every table -->\nold\n<!-- end -->\nkept\n"
    filled = write_tables.fill_page(page, {"one": "| a |\n", "two": "| b |\n"})
    assert "\n**one**\n\n| a |\n\n**two**\n\n| b |\n\n<!-- end -->\nkept\n" in filled
    assert "old" not in filled


def test_tables_that_a_marker_excepts_are_left_out() -> None:
    page = "<!-- every table but wo; hree -->\n<!-- end -->\n"
    filled = write_tables.fill_page(page, {"one": "| a |\n", "two": "| b |\n", "three": "| c |\n"})
    assert filled == "<!-- every table but wo; hree -->\n\n**one**\n\n| a |\n\n<!-- end -->\n"


@pytest.mark.parametrize(
    "page",
    [
        "<!-- table: nowhere -->\n<!-- end table -->\n",
        "<!-- every table but nowhere -->\n<!-- end -->\n",
    ],
)
def test_unknown_tables_are_refused(page: str) -> None:
    with pytest.raises(write_tables.UnknownTableError, match="nowhere"):
        write_tables.fill_page(page, {"one": "| a |\n"})


def test_pages_mark_their_tables_completely() -> None:
    texts = {path: path.read_text() for path in PAGES}
    begun = {path: page.count("<!-- table: ") for path, page in texts.items()}
    assert all(begun[path] or write_tables.EVERY.search(page) for path, page in texts.items())
    assert begun == {path: page.count("<!-- end table -->") for path, page in texts.items()}
    assert begun == {path: len(write_tables.TABLE.findall(page)) for path, page in texts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("pages", SHARING.values(), ids=name_pages)
def test_tables_equal_the_data(pages: list[Path], tmp_path: Path) -> None:
    texts = [path.read_text() for path in pages]
    tables = write_tables.run_commands("".join(texts), tmp_path)
    assert [write_tables.fill_page(text, tables) for text in texts] == texts
    marked = [title for text in texts for _, title, *_ in write_tables.TABLE.findall(text)]
    if not any(map(write_tables.EVERY.search, texts)):
        printed = {remove_number(title) for title in tables}
        assert printed == {remove_number(title) for title in marked}
    pictures = list(tmp_path.glob("*.png"))
    assert len(pictures) >= sum(PICTURES.get(path.parent.name, 0) for path in pages)
    assert all(picture.stat().st_size > 10_000 for picture in pictures)
