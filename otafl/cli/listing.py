"""Define `otafl list` and the commands of `otafl data`."""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.core import presets, registry
from otafl.core.console import make_console, print_pairs
from otafl.core.errors import UserError
from otafl.core.suggestions import find_same, find_synonym, format_suggestion

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Data sets.")

PRESETS = "presets"
"""What scenarios may extend, beside the tables of the registry."""


def list_(
    name: Annotated[
        str | None,
        typer.Argument(help="A table (power), what is in one (tci), or a section (training)."),
    ] = None,
    component: Annotated[
        str | None, typer.Argument(help="What is in the table, if several have the name.")
    ] = None,
) -> None:
    """List what a scenario can name, or explain one."""
    out, files = make_console(), presets.list_presets()
    tables = {table: registry.list_names(table) for table in registry.TABLES}
    if component is not None:
        if component not in tables.get(str(name), ()):
            unknown = f"no table {name!r}; tables: {', '.join(tables)}"
            said = registry.format_unknown_name(str(name), component) if name in tables else unknown
            raise UserError(f"list: {said}")
        _explain(out, str(name), component)
    elif name is None:
        lists = tables | {PRESETS: tuple(files)}
        print_pairs(out, ((title, ", ".join(names)) for title, names in lists.items()))
        out.print("\notafl list TABLE explains a line, otafl list NAME a component or section")
    elif name in files:
        out.print(files[name].read_text(encoding="utf-8").rstrip())
    elif name == PRESETS:
        summaries = {one: presets.read_summary(file) for one, file in files.items()}
        print_pairs(out, ((one, text.removesuffix(".")) for one, text in summaries.items()), name)
    elif name in tables:
        infos = [registry.read_info(name, one) for one in tables[name]]
        texts = [f"{one.summary} ({one.citation})".removesuffix(" ()") for one in infos]
        print_pairs(out, zip(tables[name], texts, strict=True), name)
    else:
        found = [table for table, names in tables.items() if name in names]
        sections: dict[str, type[BaseModel]] = {}
        if not found:  # sections choose no component, and need the whole schema
            from otafl.scenario import Scenario
            from otafl.scenario.key_descriptions import find_sections

            sections = find_sections(Scenario)
        if name in sections:
            out.print(name, style="bold")
            out.print(_reflow(inspect.cleandoc(sections[name].__doc__ or "")))
            _print_settings(out, sections[name], name, ())
        elif not found:
            every = [PRESETS, *files, *tables, *sections, *itertools.chain(*tables.values())]
            same = find_same(name, every)
            if same is not None:
                out.print(f"{name} is called {same}.\n")
                list_(same)
                return
            key, guess = find_synonym(name), format_suggestion(name.lower(), every) or ";"
            hint = f"; it is the key {key};" if key else guess
            raise UserError(
                f"list: no table {name!r}, and nothing of this name{hint} tables: "
                f"{', '.join(tables)}; sections: {', '.join(sections)}"
            )
        for table in found:
            _explain(out, table, name)


def _explain(out: Console, table: str, name: str) -> None:
    """Print what a component does, its settings, a scenario that uses it, and its sources."""
    from rich.padding import Padding

    from otafl.scenario.writing import format_example

    found, about = registry.TABLES[table], registry.read_info(table, name)
    out.print(f"{found.section}: {name}", style="bold")
    out.print(f"{about.summary}.")
    if about.text:
        out.print(f"\n{_reflow(about.text)}")
    config = registry.load_settings_class(table, name)
    _print_settings(out, config, f"{table}-{name}", ("name",))
    out.print("\nA scenario that uses it", style="bold")
    out.print(Padding(format_example(table, name).rstrip(), (0, 0, 0, 2)))
    if about.references:
        out.print("\nReferences", style="bold")
        for reference in about.references:
            out.print(Padding(reference, (0, 0, 0, 2)))
    out.print()


def _print_settings(
    out: Console, config: type[BaseModel], section: str, skip: tuple[str, ...]
) -> None:
    """Print the keys of settings: meaning, type, unit, bounds and default."""
    from rich.padding import Padding
    from rich.table import Table

    from otafl.scenario.key_descriptions import describe_keys

    settings = Table(box=None, pad_edge=False, show_header=False)
    settings.add_column(no_wrap=True)
    settings.add_column()
    for key in describe_keys(config, section, skip):
        default = "must be given" if key.default is None else f"default {key.default}"
        settings.add_row(key.name, f"{key.meaning}; {key.kind}; {default}".removeprefix("; "))
    if settings.rows:
        out.print("\nSettings", style="bold")
        out.print(Padding(settings, (0, 0, 0, 2)))


def _reflow(text: str) -> str:
    """Return a text with a line a paragraph; tables and formulas, which are indented, stay."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(one if "\n " in one else " ".join(one.split("\n")) for one in paragraphs)


@data.command("list")
def data_list() -> None:
    """List the built-in data sets, where they are, and whether their checksums are right."""
    from rich.table import Table

    from otafl.data.files import list_available

    lines = Table(box=None)
    for title in ("name", "here", "where", "what"):
        lines.add_column(title, overflow="fold")
    for row in list_available():
        lines.add_row(*row)
    make_console().print(lines)


@data.command("get")
def data_get(name: Annotated[str, typer.Argument()]) -> None:
    """Download a data set to the folder that $OTAFL_DATA_DIR names."""
    from otafl.data.files import fetch

    typer.echo(f"{name} is in {fetch(name)}")
