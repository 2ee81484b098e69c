"""Define `otafl check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.cli.app import Overrides, Trust, import_libraries, load
from otafl.core.errors import UserError
from otafl.core.words import counted

if TYPE_CHECKING:
    from otafl.scenario import Point


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
    no_code: Annotated[
        bool, typer.Option("--no-code", help="Import nothing that the file names; check the rest.")
    ] = False,
) -> None:
    """Print a scenario filled in, or all its errors."""
    from otafl.scenario import json_schema
    from otafl.user_code import loading

    if no_code and (trust or dry_run):
        other = "--trust" if trust else "--dry-run"
        raise UserError(
            f"--no-code: {other} runs the code that the file names; give one of the two"
        )
    if schema:
        import json

        typer.echo(json.dumps(json_schema(), indent=2))
    elif scenario is None:
        raise UserError("check: give a scenario's file, or --schema for the JSON schema")
    elif dry_run:
        _rehearse(scenario, set_, trust)
    elif no_code:
        with loading.without_code():  # nothing is run, so there is nobody to trust
            _look(scenario, set_, trust=True)
    else:
        _look(scenario, set_, trust)


def _look(path: Path, overrides: list[str] | None, trust: bool) -> None:
    """Print a scenario filled in, and say what is known of it; within `loading.without_code` what
    is known without code of the user's."""
    from otafl.preflight.foresight import foresight
    from otafl.scenario import expand, notes_on, to_yaml

    loaded = load(path, overrides, None, trust, foresight())
    points = expand(loaded)
    from otafl.running.memory import no_room

    skipped = _not_imported(points)
    sound = [point for point in points if not _not_imported([point])]
    warnings = [*no_room(sound), *notes_on(sound)] if sound else []
    typer.echo(to_yaml(loaded).rstrip())
    found = "nothing wrong without its code" if skipped else "valid"
    typer.echo(f"{path}: {found}; {counted(len(points), 'point')}", err=True)
    for text in skipped:
        typer.echo(f"otafl: not checked: {text}", err=True)
    for text in warnings:
        typer.echo(f"otafl: warning: {text}", err=True)


def _not_imported(points: Sequence[Point]) -> list[str]:
    """Name the code of the user's that points name, within `loading.without_code`."""
    from otafl.scenario.keys import custom_sections, dotted
    from otafl.user_code import loading

    if loading.imports_code():
        return []
    found = (pair for point in points for pair in custom_sections(point.scenario))
    names = (f"{dotted(path)}.name: {section.name!r}" for path, section in found)
    return [f"{name}, its keys and what depends on it" for name in dict.fromkeys(names)]


def _rehearse(path: Path, overrides: list[str] | None, trust: bool) -> None:
    """Try a small round of each point, and say what was done."""
    import_libraries()
    from otafl.preflight.dry_run import DryRun

    rehearsal = DryRun(typer.echo)
    loaded = load(path, overrides, None, trust, rehearsal)
    typer.echo(rehearsal.summary(loaded))
