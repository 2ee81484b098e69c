"""Run the command line.

`otafl new | run | sweep | check | list | show | diff | table | compare | convert | verify |
export | plot | report | timeline | validate | data`. Exit codes: 0; 2 for what the user can mend,
told in one message on stderr; 130 for Ctrl-C, 143 for SIGTERM and 129 for SIGHUP, told in one
sentence; 1 for stacks that failed, a law that fails validation, results that differ and, with a
traceback, for anything else. What is heavy is imported inside the commands, so that `otafl --help`
is quick; and the commands inside `main`, so that signals find a guard from the start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from otafl.cli import streams
from otafl.cli.interrupts import guard
from otafl.core.program_variables import choose_variables

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> None:
    """Run a command of the command line.

    Without arguments they are those of this program, whose signals are then guarded. With arguments
    the calling program continues afterwards, and its signals are its own.
    """
    if args is None:
        streams.prepare()
        _leave_out_working_folder()
        os.environ.update(choose_variables())
        guard.run(_command)
    else:
        _command(args)


def _leave_out_working_folder() -> None:
    """Remove the working folder, which `python -m` puts first, from the module search path.

    A module there would take the place of a library's. The code that a scenario names is found all
    the same, see `otafl.user_code.loading`. A folder that otafl itself was imported from stays.
    """
    with contextlib.suppress(FileNotFoundError):  # the working folder was removed
        if sys.path[0] == os.getcwd() != str(Path(__file__).parents[2]):
            del sys.path[0]


def _command(args: Sequence[str] | None = None) -> None:
    from otafl.cli.commands import call

    call(args)
