"""Define `otafl check`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.cli.app import Overrides, warn
from otafl.core.errors import UserError
from otafl.core.suggestions import format_count

if TYPE_CHECKING:
    from otafl.preflight import Rehearsal


def check(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.yaml", show_default=False)
    ] = None,
    set_: Overrides = None,
    full: Annotated[bool, typer.Option("--full", help="Print every setting.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema.")] = False,
) -> None:
    """Print what a scenario sets, or all its errors.

    Each distinct setting of a sweep runs a small round on the data, if they are on this machine.

    The main keys that are not in the file are marked as default, and those that change
    nothing as without effect.
    """
    from otafl.preflight import rehearse, report
    from otafl.scenario import build_json_schema, format_settings

    if schema:
        typer.echo(json.dumps(build_json_schema(), indent=2))
        return
    if scenario is None:
        raise UserError("check: give a scenario's file, or --schema for the JSON schema")
    found = report(scenario, set_ or (), rehearse)
    typer.echo(format_settings(found.scenario, full))
    counted = format_count(len(found.points), "point")
    if untried := [one.untried for one in found.rehearsals if one.untried]:
        counted += f", {len(untried)} of them without a rehearsal"
    size = "".join(f"; {text}" for text in _describe_size(found.rehearsals))
    typer.echo(f"{scenario}: valid; {counted}{size}", err=True)
    warn(found.warnings)
    warn(
        f"{text}; until then it is not tried whether data, partition, model and method fit"
        for text in dict.fromkeys(untried)
    )
    if not full:
        typer.echo("--full prints every setting", err=True)


def _describe_size(rehearsals: list[Rehearsal]) -> Iterator[str]:
    """Yield what is known of memory and time; of less than a second nothing."""
    if any(one.untried for one in rehearsals):
        return
    yield f"one trial takes {max(one.trial_bytes for one in rehearsals) / 1e6:,.2f} MB at least"
    if (seconds := sum(one.seconds for one in rehearsals)) >= 1.0:
        yield f"the local work of all takes {seconds:,.0f} s at least"
    if start_bits := max(one.start_bits for one in rehearsals):
        yield f"a broadcast of the start takes {start_bits / 1e6:,.2f} Mbit"
