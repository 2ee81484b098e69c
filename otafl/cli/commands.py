"""Gather the commands, and call one."""

from __future__ import annotations

import errno
import functools
import itertools
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer
import typer.main

from otafl.cli import (
    data,
    drawing,
    exporting,
    listing,
    new,
    results,
    running,
    scenarios,
    streams,
    tables,
    validation,
)
from otafl.cli.app import app
from otafl.cli.interrupts import guard
from otafl.core.errors import UserError
from otafl.user_code import error_origin

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
    tables.table,
    tables.compare,
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


def _check_given(args: Sequence[str]) -> None:
    """Raise UserError for an empty argument, which a shell's variable that is not set leaves."""
    for before, arg in itertools.pairwise(("otafl", *args)):
        if not arg:
            raise UserError(
                f"expected a value after {before}, got an empty text; give one, or leave it out"
            )


@functools.cache
def _build_parser() -> Callable[..., Any]:
    """Build the parser of all commands, once for a program that calls several."""
    return typer.main.get_command(app)


def call(args: Sequence[str] | None = None) -> None:
    """Call a command, that of `sys.argv` if none is given.

    It always leaves by SystemExit or by an unexpected exception.
    """
    try:
        _check_given(sys.argv[1:] if args is None else args)
        try:
            _build_parser()(args=args, prog_name="otafl")
        except SystemExit as end:
            if not end.code and (fault := streams.flush_and_find_fault()):
                raise UserError(fault) from None
            raise
    except Exception as raised:
        guard.check()  # it may be what became of a Ctrl-C
        error = error_origin.explain_error(raised)
        if isinstance(error, UserError):
            if error_origin.is_traceback_enabled():
                traceback.print_exception(error)
            typer.echo(f"otafl: error: {error}", err=True)
            sys.exit(2)
        if not isinstance(error, OSError) or error.errno not in UNREACHABLE:
            raise
        name = str(error.filename)
        shown = name if len(name) <= 80 else f"{name[:77]}..."
        typer.echo(f"otafl: error: {shown}: {error.strerror}; give another path", err=True)
        sys.exit(2)
