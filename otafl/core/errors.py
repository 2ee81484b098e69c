"""Errors whose messages are for the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


class UserError(Exception):
    """An error that the user can correct.

    The message is one sentence with the key or file, the given value and the remedy. The command
    line prints it without a traceback and exits with code 2.
    """


class DamagedError(UserError):
    """A file whose content has changed since it was written.

    reason: the fault, without the file's name.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.reason = why


class AbsentDataError(UserError):
    """Data that this machine lacks, or the package that reads them, which the user can fetch."""


class WriteError(UserError):
    """A file that cannot be written; results computed later could not be saved either."""


@contextlib.contextmanager
def wrap_write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError into a WriteError: the file or folder cannot be changed."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{path}: cannot be changed: {error.strerror or error}") from error
