"""Define `otafl check` and `otafl list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otafl.cli.app import Overrides, Trust, load
from otafl.core.console import plain_console
from otafl.core.errors import UserError
from otafl.core.words import counted


def check(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.yaml", show_default=False)
    ] = None,
    set_: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema.")] = False,
    trust: Trust = False,
) -> None:
    """Print a scenario filled in, or all its errors."""
    from otafl.scenario import expand, json_schema, to_yaml

    if schema:
        import json

        typer.echo(json.dumps(json_schema(), indent=2))
    elif scenario is None:
        raise UserError("check: give a scenario's file, or --schema for the JSON schema")
    else:
        from otafl.engine.foresight import foresight

        loaded = load(scenario, set_, None, trust, foresight())
        points = expand(loaded)
        from otafl.engine.memory import no_room

        warnings = no_room(points)
        typer.echo(to_yaml(loaded).rstrip())
        typer.echo(f"{scenario}: valid; {counted(len(points), 'point')}", err=True)
        for text in warnings:
            typer.echo(f"otafl: warning: {text}", err=True)


def list_(
    table: Annotated[str | None, typer.Argument(help="E.g. power; else all.")] = None,
) -> None:
    """List what a scenario can name."""
    from rich.table import Table

    from otafl.core import registry

    out = plain_console()
    for title in [_table(table)] if table else registry.TABLES:
        lines = Table(title=title, title_justify="left", box=None, show_header=False)
        lines.add_column(no_wrap=True)
        lines.add_column()
        for name in registry.names(title):
            about = registry.about(title, name)
            cited = f" ({about.citation})" if about.citation else ""
            lines.add_row(name, f"{about.summary}{cited}")
        out.print(lines)
        out.print()


def _table(word: str) -> str:
    """Find the table that is meant: by its name, by what it holds, or by their plural."""
    from otafl.core.registry import TABLES
    from otafl.core.words import did_you_mean

    said = word.lower().replace("-", " ").replace("_", " ")
    for name, table in TABLES.items():
        if said in (name, f"{name}s", table.noun, f"{table.noun}s", table.title.lower()):
            return name
    hint = did_you_mean(said, TABLES) or ";"
    raise UserError(f"list: no table {word!r}{hint} known: {', '.join(TABLES)}")
