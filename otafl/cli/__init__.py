"""Run the command line.

`otafl run | sweep | check | list | show | diff | convert | export | plot | report | timeline |
validate | data`. Exit codes: 0; 2 for what the user can mend, told in one message on stderr; 1 for
an interruption, stacks that failed, a law that fails validation, results that differ and, with a
traceback, for anything else. What is heavy is imported inside the commands, so that `otafl --help`
is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from otafl.cli import data, drawing, exporting, results, running, scenarios, validation
from otafl.cli.app import app
from otafl.core.errors import UserError

__all__ = ["app", "main"]

for command in (
    running.run,
    running.sweep,
    scenarios.check,
    scenarios.list_,
    results.show,
    results.diff,
    results.convert,
    exporting.export,
    drawing.plot,
    drawing.report,
    drawing.timeline,
    validation.validate,
):
    app.command(command.__name__.rstrip("_"))(command)
app.add_typer(data.app, name="data")


def main(args: Sequence[str] | None = None) -> None:
    """Run a command. It always leaves by SystemExit or by an unexpected exception."""
    try:
        app(args=args, prog_name="otafl")
    except UserError as error:
        typer.echo(f"otafl: error: {error}", err=True)
        sys.exit(2)
