"""Give this program a temporary folder, and remove those of programs that were killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "otafl-workers-"
LOCK = "lock"
"""File in such a folder, locked as long as its program lives: the system frees it, however that
ends."""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Yield a new folder that only this user reads, after those that nobody uses any more were
    removed."""
    remove_left()
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = _locked(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_left() -> None:
    """Remove this user's folders whose programs are dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        about = path.lstat() if path.exists() else None
        if about is None or not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            continue
        with contextlib.suppress(OSError):  # it is just being made, or its program lives
            lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            with contextlib.closing(os.fdopen(lock)):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)


def _locked(path: Path) -> int:
    """Make the lock of a folder, which is locked already when it gets its name."""
    unnamed = path / f"{LOCK}.new"
    lock = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(path / LOCK)
    return lock
