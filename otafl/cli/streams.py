"""The program's own streams, wherever they lead: closed, full, or of few letters.

What is computed is on disk before anything is said of it, so a stream that takes nothing more costs
words alone. Nothing is imported here that takes time.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from typing import Any

STDOUT, STDERR = 1, 2


class Stream(io.TextIOWrapper):
    """A text stream over a descriptor of the program.

    What the terminal's encoding cannot write is replaced. After an error the descriptor leads
    nowhere, so that nothing fails again when the program ends; `failed` says which error it was.
    """

    def __init__(self, descriptor: int, old: Any) -> None:
        buffer = os.fdopen(descriptor, "wb", closefd=False)
        encoding = getattr(old, "encoding", None) or "utf-8"
        lines = descriptor == STDERR or os.isatty(descriptor)
        super().__init__(buffer, encoding, "replace", line_buffering=lines)
        self._descriptor = descriptor
        self.failed: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._discard(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._discard(error)

    def _discard(self, error: OSError) -> None:
        """Redirect the descriptor to nowhere; report a pipe without a reader to the writer."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._descriptor)
        os.close(nowhere)
        self.failed = self.failed or error
        if error.errno == errno.EPIPE and self._descriptor == STDOUT:
            raise error


def prepare() -> None:
    """Make the streams of this program ones that a command can rely on.

    A closed descriptor is opened to nowhere: the next file that is opened would else get its
    number, and messages. Warnings of libraries are no errors of the program, even with
    `-W error`. Those of otafl about a scenario are a line each.
    """
    for descriptor in (0, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    sys.stdout = Stream(STDOUT, sys.stdout)
    sys.stderr = Stream(STDERR, sys.stderr)
    for place, (action, *rest) in enumerate(warnings.filters):
        if action == "error":
            warnings.filters[place] = ("default", *rest)  # type: ignore[index]


def flush_and_find_fault() -> str:
    """Flush standard output, and say why it did not take everything; empty where it did."""
    stream = sys.stdout
    if not isinstance(stream, Stream):
        return ""
    stream.flush()
    if stream.failed is None or stream.failed.errno == errno.EPIPE:
        return ""
    return (
        f"standard output: cannot be written ({stream.failed.strerror}); what was computed is kept"
    )
