"""The process that runs a command: its environment variables, streams and signals.

The command line changes its process only here. SIGINT, SIGTERM and SIGHUP, which a lost connection
to a terminal sends, raise KeyboardInterrupt once; after that they have the system's own effect.
While the exception propagates, locks are freed, trackers are closed and workers are killed. Nothing
is saved then: each finished stack was written when it ended, and a checkpoint after its rounds. A
first signal after the command is ignored, as nothing is left to interrupt. This module imports
nothing that takes time.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from otafl.core.program_variables import choose_variables

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The signal that interrupted this program, and the work that the command keeps.

    Attributes
    ----------
    number : int
        Number of the signal; 0 before.
    describe_kept_fn : callable
        Function that returns what the command keeps, and what to do, as text.
    """

    def __init__(self) -> None:
        self.number = 0
        self.describe_kept_fn: Callable[[], str] = str


interruption = Interruption()


class SignalInterrupt(KeyboardInterrupt):
    """A KeyboardInterrupt by any of `SIGNALS`.

    CPython ends a program with SIGINT in place of its exit code, if a KeyboardInterrupt of just
    this type has left an `exec`, with which the standard library makes dataclasses.
    """


def run(command: Callable[[], None]) -> None:
    """Run the only command of a program; exit with 128 + the number of a signal.

    A signal that is ignored when the program starts, as below `nohup`, stays ignored.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # trick: a result's name may have any character
    # Without the working folder, which `python -m` puts first in the search path: a module there
    # would take the place of a library's. Code that a scenario names is found all the same, see
    # `otafl.user_code.loading`. A folder that otafl itself was imported from stays.
    with contextlib.suppress(FileNotFoundError):  # the working folder was removed
        if sys.path[0] == os.getcwd() != str(Path(__file__).parents[2]):
            del sys.path[0]  # trick: as `python -P` would
    os.environ.update(choose_variables())  # trick: libraries read them when they are imported
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)  # trick: TERM and HUP end a run as Ctrl-C does
    try:
        try:
            command()
        finally:
            _flush_streams()
            _set_handlers(signal.SIG_IGN)  # the command's work is done
    except BaseException:  # a library may turn the KeyboardInterrupt into any other error
        if not interruption.number:
            raise
    if interruption.number:
        try:
            kept = interruption.describe_kept_fn()
        except Exception:  # a library may be half imported
            kept = ""
        with contextlib.suppress(OSError):
            print(f"otafl: interrupted{kept and f'; {kept}'}", file=sys.stderr)
        _flush_streams()
        sys.exit(128 + interruption.number)


def _flush_streams() -> None:
    """Flush the standard streams.

    One that fails leads nowhere from then on, so that it does not fail again at the very end.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # trick: see above


def _interrupt(number: int, frame: FrameType | None) -> None:
    _set_handlers(signal.SIG_DFL)  # the second signal ends the program
    interruption.number = number
    raise SignalInterrupt


def _set_handlers(handler: signal.Handlers) -> None:
    """Handle the signals that `_interrupt` handled in another way."""
    for number in SIGNALS:
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, handler)  # trick: one signal interrupts, and no later one does
