"""Raise errors that speak to the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


class UserError(Exception):
    """Something is wrong that the user can mend.

    The message is one clear sentence that names the key or file, the value it got and what would
    do. The command line prints it and exits with 2, without a traceback.
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
