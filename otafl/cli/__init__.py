"""Run the command line.

`otafl new | run | sweep | check | list | show | diff | table | compare | convert | verify |
export | plot | report | timeline | validate | data`. Exit codes: 0; 2 for what the user can mend,
told in one message on stderr; 130 for Ctrl-C, 143 for SIGTERM and 129 for SIGHUP, told in one
sentence; 1 for stacks that failed, a law that fails validation, results that differ and, with a
traceback, for anything else. What is heavy is imported inside the commands, so that `otafl --help`
is quick; and the commands inside `main`, so that signals are handled from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

from otafl.cli import process

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> None:
    """Run a command of the command line.

    Without arguments they are those of this program, whose signals, streams and environment are
    then prepared. With arguments the calling program continues afterwards, and they are its own.
    """
    if args is None:
        process.run(_command)
    else:
        _command(args)


def _command(args: Sequence[str] | None = None) -> None:
    from otafl.cli.commands import call

    call(args)
