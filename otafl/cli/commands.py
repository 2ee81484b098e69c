"""Gather the commands, and call one."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import traceback
from collections.abc import Sequence

import typer.main

from otafl.cli import (
    drawing,
    listing,
    new,
    process,
    results,
    running,
    scenarios,
    tables,
    validation,
)
from otafl.cli.app import app, say
from otafl.core.errors import UserError, WriteError
from otafl.core.suggestions import shorten

UNREACHABLE = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP)
"""Errors of paths that the user can mend, whichever command meets them."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a disk; without a file's name they are those of standard output."""

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
    results.archive,
    results.verify,
    results.export,
    drawing.plot,
    drawing.report,
    drawing.timeline,
    validation.validate,
):
    app.command(command.__name__.rstrip("_"))(command)
app.add_typer(listing.data, name="data")


def call(args: Sequence[str] | None = None) -> None:
    """Call a command, that of `sys.argv` if none is given.

    It always leaves by SystemExit or by an unexpected exception.
    """
    given = list(sys.argv[1:] if args is None else args)
    try:
        for before, arg in itertools.pairwise(("otafl", *given)):
            if not arg:  # a shell's variable that is not set
                raise UserError(
                    f"expected a value after {before}, got an empty text; give one, or leave it out"
                )
        typer.main.get_command(app)(args=given, prog_name="otafl")
    except Exception as raised:
        if process.interruption.number:  # it may be the consequence of a KeyboardInterrupt
            raise
        from otafl.user_code import loading

        error = loading.explain_error(raised)
        message = _describe_error(error)
        if not message:
            raise
        if isinstance(error, UserError) and os.environ.get(loading.TRACEBACK, "") not in ("", "0"):
            traceback.print_exception(error)
        say(f"error: {message}")
        sys.exit(2)


def _describe_error(error: Exception) -> str:
    """Return the message of an error that the user can correct; empty for any other error."""
    if isinstance(error, WriteError):
        kept = process.interruption.describe_kept_fn()
        return f"{error}{kept and f'; {kept}'}"
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.errno in UNREACHABLE:
        return f"{shorten(str(error.filename), 80)}: {error.strerror}; give another path"
    if isinstance(error, OSError) and error.errno in FULL:
        file = "standard output" if error.filename is None else shorten(str(error.filename), 80)
        return f"{file}: cannot be written ({error.strerror}); what was computed is kept"
    if isinstance(error, MemoryError):
        return "the memory is not enough; use a smaller model, fewer devices or a smaller result"
    return ""
