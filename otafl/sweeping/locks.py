"""Lock a sweep's folder, which several programs may work on.

The system frees a lock with the program that holds it, however that ends. Where a file system knows
no locks, the work is done without: files are replaced as a whole, so the worst is that two
programs compute the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from otafl.core.errors import UserError, WriteError
from otafl.core.files import write_text
from otafl.core.inputs import MIB, read_text

TRIES = 10


class Busy(Exception):
    """Lock that another program holds."""


@contextlib.contextmanager
def hold_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Lock a file, which may be left behind, while a `with` statement runs.

    Raises Busy if it is taken and `wait` is False, WriteError if its folder cannot be written.
    """
    lock = FileLock(path)
    try:
        os.fspath(path).encode()
        _acquire(lock, path, -1 if wait else 0)
    except Timeout:
        raise Busy from None
    except NotImplementedError:
        yield
        return
    except UnicodeEncodeError as error:  # said before anything is computed
        raise WriteError(
            f"{path.parent}: cannot be written, since NetCDF files need names in UTF-8; try --out"
        ) from error
    except OSError as error:
        raise WriteError(
            f"{path.parent}: cannot be written ({error.strerror}); try --out"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def hold_folder(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder for this program while a `with` statement runs.

    what: is made there, for the message. Raises UserError, which names the program, if another one
    holds it.
    """
    holder = folder / "run.json"
    try:
        with hold_lock(folder / "run.lock", wait=False):
            about = {"pid": os.getpid(), "host": socket.gethostname()}
            write_text(holder, json.dumps(about), replaces=True)
            yield
    except Busy:
        raise UserError(
            f"{what}: another `otafl run` makes it{_describe_holder(holder)}; wait for it, or give "
            "another place with --out"
        ) from None


def _describe_holder(holder: Path) -> str:
    """Name the program that a folder's lock was taken by, and when, as far as it is known."""
    try:
        owner, since = json.loads(read_text(holder, MIB)), holder.stat().st_mtime
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(since))
        return f" (process {owner['pid']} on {owner['host']}, since {when})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _acquire(lock: FileLock, path: Path, timeout: int) -> None:
    """Take the lock.

    A program that finds the sweep finished may remove the folder meanwhile.
    """
    for attempt in range(TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=timeout)
        except FileNotFoundError:
            if attempt == TRIES - 1:
                raise
        else:
            return
