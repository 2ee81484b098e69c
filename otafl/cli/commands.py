"""Gather the commands, and call one."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence

import typer

from otafl.cli import (
    data,
    drawing,
    exporting,
    listing,
    new,
    results,
    running,
    scenarios,
    validation,
)
from otafl.cli.app import app
from otafl.cli.interrupts import guard
from otafl.core import blame
from otafl.core.errors import UserError

UNREACHABLE = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP)
"""Errors of paths that the user can mend, whichever command meets them."""

for command in (
    new.new,
    running.run,
    running.sweep,
    scenarios.check,
    listing.list_,
    results.show,
    results.diff,
    results.convert,
    results.verify,
    exporting.export,
    drawing.plot,
    drawing.report,
    drawing.timeline,
    validation.validate,
):
    app.command(command.__name__.rstrip("_"))(command)
app.add_typer(data.app, name="data")


def call(args: Sequence[str] | None = None) -> None:
    """Call a command, that of `sys.argv` if none is given. It always leaves by SystemExit or by an
    unexpected exception."""
    try:
        app(args=args, prog_name="otafl")
    except Exception as raised:
        guard.check()  # it may be what became of a Ctrl-C
        error = blame.told(raised)
        if isinstance(error, UserError):
            if blame.wants_traceback():
                traceback.print_exception(error)
            typer.echo(f"otafl: error: {error}", err=True)
            sys.exit(2)
        if not isinstance(error, OSError) or error.errno not in UNREACHABLE:
            raise
        name = str(error.filename)
        shown = name if len(name) <= 80 else f"{name[:77]}..."
        typer.echo(f"otafl: error: {shown}: {error.strerror}; give another path", err=True)
        sys.exit(2)
