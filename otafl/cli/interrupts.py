"""Termination of the program on Ctrl-C, SIGTERM or SIGHUP with one sentence and 130, 143 or 129.

A lost connection to a terminal sends SIGHUP; `nohup` has it ignored.

The first signal raises KeyboardInterrupt in the main thread, and while it propagates the commands
save the work that is finished. The exception may be lost: a weak reference or a destructor cannot
raise, and a library may catch anything. Then it is raised again. During an import it is deferred,
because the C++ of a library that starts may end the program at an exception. If the import takes
longer than `PUT_OFF_S`, the program ends at once, as soon as the interpreter runs; loading a
library from a slow disk holds it up. A second signal ends the program at once; files are whole all
the same, see `otafl.core.files`.

This module imports nothing that takes time, so that little of the program's life is unguarded.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SAME_S = 0.5
"""Signals so soon after the first are the same one: `timeout` and batch systems send it to the
program and to its group."""

AGAIN_S = 0.01
"""From a KeyboardInterrupt that was lost, or put off, to the next."""

PUT_OFF_S = 1.0
"""A signal is put off no longer than that."""


class Guard:
    """State of this program's signals.

    code: of the exit after a signal, 0 before. describe_kept_fn: says what a command keeps of its
    work, and what to do.
    """

    def __init__(self) -> None:
        self.code = 0
        self.describe_kept_fn: Callable[[], str] = str
        self._signalled_at = 0.0
        self._leaving = False

    def run(self, command: Callable[[], None]) -> None:
        """Run a program's one command; after a signal leave with a sentence and SystemExit."""
        # of the two blocks the inner one may itself be interrupted, the outer one not: no signal
        # raises twice, and none while the program leaves
        try:
            self._install()
            try:
                command()
            finally:
                self._leaving = True
        except BaseException:
            self._leaving = True
            if not self.code:
                raise
        if self.code:  # whatever the KeyboardInterrupt has become on its way
            _write_stderr(f"interrupted{self._describe_kept()}")
            sys.exit(self.code)

    def check(self) -> None:
        """Raise KeyboardInterrupt again if a library caught it.

        Any thread may call it at the places where work continues.
        """
        if self.code and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    def _install(self) -> None:
        atexit.register(self._on_exit)  # first of all, so it is the last to be called
        sys.unraisablehook = self._on_unraisable
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` and `&` may wish
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        now = time.monotonic()
        if self.code and now - self._signalled_at < SAME_S:
            return
        if self.code or self._leaving:
            again = " again" if self.code else ""
            _write_stderr(
                f"interrupted{again}; ended at once, the files that were written are whole"
            )
            os._exit(128 + number)
        self.code, self._signalled_at = 128 + number, now
        self._raise(frame)

    def _raise(self, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt in the frame, or defer it during an import.

        End the program if the import takes too long.
        """
        if not _is_importing(frame):
            raise KeyboardInterrupt
        if time.monotonic() - self._signalled_at > PUT_OFF_S:
            self._leaving = True
            _write_stderr(f"interrupted{self._describe_kept()}")
            os._exit(self.code)
        self._raise_later()

    def _raise_later(self) -> None:
        signal.signal(signal.SIGALRM, self._raise_again)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    def _on_unraisable(self, lost: Any) -> None:
        """Take an error that could not be raised; what a signal tears down has nothing to tell."""
        if not self.code:
            sys.__unraisablehook__(lost)
        elif issubclass(lost.exc_type, KeyboardInterrupt):
            self._raise_later()

    def _raise_again(self, number: int, frame: FrameType | None) -> None:
        if not self._leaving:
            self._raise(frame)

    def _on_exit(self) -> None:
        """Ignore signals from now on, and after one leave before the interpreter is torn down.

        Libraries whose import the signal cut short may crash there. CPython would die of SIGINT if
        the KeyboardInterrupt left an `eval` of text.
        """
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if self.code:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
                    stream.flush()
            os._exit(self.code)

    def _describe_kept(self) -> str:
        try:
            text = self.describe_kept_fn()
        except Exception:  # of libraries that are half imported
            return ""
        return f"; {text}" if text else ""


guard = Guard()


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame, or one that it was called from, is that of an import."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _write_stderr(text: str) -> None:
    """Write a sentence to stderr, which a signal may have found in the middle of something else."""
    shown = os.isatty(2)
    before, cursor = ("\n", "\033[?25h") if shown else ("", "")
    with contextlib.suppress(OSError):  # nobody reads it
        os.write(2, f"{before}{cursor}otafl: {text}\n".encode(errors="replace"))
