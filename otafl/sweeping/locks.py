"""Lock a sweep's folder, which several programs may work on.

The system frees a lock with the program that holds it, however that ends. Where a file system knows
no locks, the work is done without: files are replaced as a whole, so the worst is that two
programs compute the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from otafl.core.errors import WriteError

TRIES = 10


class Busy(Exception):
    """Say that another program holds the lock."""


@contextlib.contextmanager
def held(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock, a file that may be left behind. Raises Busy if it is taken and `wait` is False,
    WriteError if its folder cannot be written."""
    lock = FileLock(path)
    try:
        _acquire(lock, path, -1 if wait else 0)
    except Timeout:
        raise Busy from None
    except NotImplementedError:
        yield
        return
    except OSError as error:
        raise WriteError(
            f"{path.parent}: cannot be written ({error.strerror}); try --out"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, path: Path, timeout: int) -> None:
    """Take the lock, though a program that finds the sweep finished may remove the folder
    meanwhile."""
    for attempt in range(TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=timeout)
        except FileNotFoundError:
            if attempt == TRIES - 1:
                raise
        else:
            return
