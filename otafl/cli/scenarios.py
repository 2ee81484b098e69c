"""Define `otafl check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otafl.cli.app import Overrides, Trust, import_libraries, load
from otafl.core.errors import UserError
from otafl.core.words import counted


def check(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.yaml", show_default=False)
    ] = None,
    set_: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema.")] = False,
    trust: Trust = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run a small round, and each part of yours in one.")
    ] = False,
) -> None:
    """Print a scenario filled in, or all its errors."""
    from otafl.scenario import expand, json_schema, notes_on, to_yaml

    if schema:
        import json

        typer.echo(json.dumps(json_schema(), indent=2))
    elif scenario is None:
        raise UserError("check: give a scenario's file, or --schema for the JSON schema")
    elif dry_run:
        _rehearse(scenario, set_, trust)
    else:
        from otafl.engine.foresight import foresight

        loaded = load(scenario, set_, None, trust, foresight())
        points = expand(loaded)
        from otafl.engine.memory import no_room

        warnings = [*no_room(points), *notes_on(points)]
        typer.echo(to_yaml(loaded).rstrip())
        typer.echo(f"{scenario}: valid; {counted(len(points), 'point')}", err=True)
        for text in warnings:
            typer.echo(f"otafl: warning: {text}", err=True)


def _rehearse(path: Path, overrides: list[str] | None, trust: bool) -> None:
    """Try a small round of each point, and say what was done."""
    import_libraries()
    from otafl.engine.dry_run import DryRun

    rehearsal = DryRun(typer.echo)
    loaded = load(path, overrides, None, trust, rehearsal)
    typer.echo(rehearsal.summary(loaded))
