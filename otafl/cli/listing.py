"""Define `otafl list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from otafl.core import presets, registry
from otafl.core.console import make_console, print_pairs
from otafl.core.errors import UserError
from otafl.core.suggestions import format_suggestion

if TYPE_CHECKING:
    from rich.console import Console


PRESETS = "presets"
"""What scenarios may extend, beside the tables of the registry."""


def _list_words() -> list[str]:
    """Return what `otafl list` can explain."""
    return [
        PRESETS,
        *presets.list_presets(),
        *registry.TABLES,
        *(one for table in registry.TABLES for one in registry.list_names(table)),
    ]


def list_(
    name: Annotated[
        str | None,
        typer.Argument(help="A table, e.g. power, or what is in one, e.g. tci."),
    ] = None,
) -> None:
    """List what a scenario can name, or explain one."""
    out = make_console()
    if name in presets.list_presets():
        out.print(presets.list_presets()[name].read_text(encoding="utf-8").rstrip())
        return
    if name in (PRESETS, "preset", "extends"):
        _list_presets(out)
        return
    title = None if name is None else _find_table(name)
    if name is not None and title is None:
        found = [table for table in registry.TABLES if name in registry.list_names(table)]
        if not found:
            raise UserError(_format_unknown(name))
        for table in found:
            _explain(out, table, name)
        return
    if title is None:
        _list_short(out)
    else:
        _list(out, title)


def _list_short(out: Console) -> None:
    """Print a line for each table, with the names of its components."""
    lists = {table: registry.list_names(table) for table in registry.TABLES}
    lists[PRESETS] = tuple(presets.list_presets())
    print_pairs(out, ((title, ", ".join(names)) for title, names in lists.items()))
    out.print("\notafl list TABLE explains a line, otafl list NAME a component")


def _list_presets(out: Console) -> None:
    """Print the presets, each with its summary."""
    files = presets.list_presets().items()
    print_pairs(
        out, ((name, presets.read_summary(file).removesuffix(".")) for name, file in files), PRESETS
    )


def _list(out: Console, table: str) -> None:
    """Print the components of a table, each with its summary and source."""
    infos = {name: registry.read_info(table, name) for name in registry.list_names(table)}
    texts = (
        f"{one.summary} ({one.citation})" if one.citation else one.summary for one in infos.values()
    )
    print_pairs(out, zip(infos, texts, strict=True), table)


def _explain(out: Console, table: str, name: str) -> None:
    """Print what a component does, its settings, a scenario that uses it, and its sources."""
    from rich.padding import Padding
    from rich.table import Table

    from otafl.scenario.key_descriptions import describe_keys
    from otafl.scenario.writing import format_example

    found, about = registry.TABLES[table], registry.read_info(table, name)
    out.print(f"{found.section}: {name}", style="bold")
    out.print(f"{about.summary}.")
    if about.text:
        out.print(f"\n{_reflow(about.text)}")
    settings = Table(box=None, pad_edge=False, show_header=False)
    settings.add_column(no_wrap=True)
    settings.add_column()
    for key in describe_keys(registry.load_settings_class(table, name), f"{table}-{name}"):
        default = "must be given" if key.default is None else f"default {key.default}"
        settings.add_row(key.name, f"{key.meaning}; {key.kind}; {default}".removeprefix("; "))
    if settings.rows:
        out.print("\nSettings", style="bold")
        out.print(Padding(settings, (0, 0, 0, 2)))
    out.print("\nA scenario that uses it", style="bold")
    out.print(Padding(format_example(table, name).rstrip(), (0, 0, 0, 2)))
    if about.references:
        out.print("\nReferences", style="bold")
        for reference in about.references:
            out.print(Padding(reference, (0, 0, 0, 2)))
    out.print()


def _reflow(text: str) -> str:
    """Return a text with a line a paragraph; tables and formulas, which are indented, stay."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(one if "\n " in one else " ".join(one.split("\n")) for one in paragraphs)


def _find_table(word: str) -> str | None:
    """Find the table that is meant by its name, its title, what it holds, or a plural."""
    said = word.lower().replace("-", " ").replace("_", " ")
    for name, table in registry.TABLES.items():
        known = {name.replace("_", " "), table.noun, table.title.lower()}
        if {said, said.removesuffix("s")} & known:
            return name
    return None


def _format_unknown(word: str) -> str:
    hint = format_suggestion(word.lower(), _list_words()) or ";"
    tables = ", ".join(registry.TABLES)
    return f"list: no table {word!r}, and nothing of this name{hint} tables: {tables}"
