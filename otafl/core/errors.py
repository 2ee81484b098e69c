"""Raise errors that speak to the user."""

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
    """A file that is not what was written. why: what was found, without the file's name."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


class WriteError(UserError):
    """Say that a file cannot be written: what is computed next could not be kept either."""


class RemovedSetting(FutureWarning):
    """A scenario gives a setting that was removed, at the value that holds without it."""


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Raise WriteError in the place of an OSError within: the file or folder cannot be changed."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{path}: cannot be changed: {error.strerror or error}") from error
