"""Everything that the site generates, as files below docs/reference/."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from otafl.core.registry import TABLES, list_names
from otafl.scenario import Scenario
from otafl.scenario.keys import iterate_fields
from otafl_docs import api, entries, figures, result_pages, rst, schema


def generated() -> Iterator[tuple[str, str]]:
    """Path below docs/reference/, and text, of every page."""
    for path, text in (*entries.pages(), *schema.pages(), *api.pages()):
        yield f"{path}.rst", text
    for path, text in result_pages.pages():
        yield f"{path}.md", text
    yield "choices.rst", _choices()
    yield "api/index.rst", _index("Python interface", ["otafl", *api.MODULES, "data"])


def _choices() -> str:
    """A card for every section of a scenario that chooses by name, and a table of the names."""
    meanings = {key: field.description for key, field in iterate_fields(Scenario)}
    cards, rows = [], []
    for table, about in TABLES.items():
        anchor = entries.place(table)[1]
        text = (
            f"{rst.literal(about.section)}: {rst.escaped(meanings[about.section])}.\n\n"
            f":kind:`{len(list_names(table))} to choose from; {about.default} if none is named`"
        )
        cards.append(rst.card(about.title, anchor, figures.figure(table), text))
        links = [f":ref:`{name} <{entries.place(table, name)[1]}>`" for name in list_names(table)]
        links += ["``module:callable`` of your own"] if about.supports_custom else []
        rows.append((f":ref:`{about.section} <{anchor}>`", ", ".join(links)))
    return rst.page(
        rst.heading("What a scenario can name"),
        rst.cards(cards),
        rst.heading("All names", 1),
        rst.table(("Section", "Choices"), rows, "choices", "22 78"),
        rst.contents([entries.place(table)[0] for table in TABLES], hidden=True),
    )


def _index(title: str, pages: Sequence[str]) -> str:
    return rst.page(rst.heading(title), rst.contents(pages))


def write(folder: Path) -> None:
    """Writes the pages that changed, and removes those that are no more."""
    kept = set()
    for path, text in generated():
        file = folder / path
        kept.add(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    for file in folder.rglob("*.*"):
        if file.is_file() and file not in kept:
            file.unlink()
