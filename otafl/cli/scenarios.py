"""Define `otafl check`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.cli.app import Overrides, print_warnings
from otafl.core.errors import UserError
from otafl.core.suggestions import format_count

if TYPE_CHECKING:
    from otafl.preflight import Report


def check(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.yaml", show_default=False)
    ] = None,
    set_: Overrides = None,
    full: Annotated[bool, typer.Option("--full", help="Print every setting.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run a small round on the data.")
    ] = False,
) -> None:
    """Print what a scenario sets, or all its errors.

    The main keys that are not in the file are marked as default, and those that change
    nothing as without effect.
    """
    from otafl.preflight import report
    from otafl.preflight.rehearsal import find_problems, find_problems_on_data
    from otafl.scenario import build_json_schema, format_settings

    if schema:
        typer.echo(json.dumps(build_json_schema(), indent=2))
        return
    if scenario is None:
        raise UserError("check: give a scenario's file, or --schema for the JSON schema")
    found = report(scenario, set_ or (), find_problems_on_data if dry_run else find_problems)
    typer.echo(format_settings(found.require_scenario(), full))
    verdict = "valid, also on its data" if dry_run else "valid"
    size = "".join(f"; {text}" for text in _describe_size(found))
    typer.echo(f"{scenario}: {verdict}; {format_count(len(found.points), 'point')}{size}", err=True)
    print_warnings(found)
    if not full:
        typer.echo("--full prints every setting", err=True)


def _describe_size(found: Report) -> Iterator[str]:
    """Yield what is known of memory and time; of less than a second nothing."""
    if found.trial_bytes is not None:
        yield f"one trial takes {found.trial_bytes / 1e6:,.2f} MB at least"
    if found.seconds is not None and found.seconds >= 1.0:
        yield f"the local work of all takes {found.seconds:,.0f} s at least"
    if found.start_bits:
        yield f"a broadcast of the start takes {found.start_bits / 1e6:,.2f} Mbit"
