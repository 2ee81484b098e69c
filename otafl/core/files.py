"""Write files that are whole or not there at all."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from otafl.core.errors import WriteError

HDF5 = b"\x89HDF\r\n\x1a\n"
"""The first bytes of a NetCDF-4 file."""


LEFT_S = 86400.0
"""A temporary file that nobody has written to for so long was left by a program that is gone."""


@contextlib.contextmanager
def written(path: Path, replaces: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write to; then it is flushed to disk and renamed.

    The file is new, and others cannot guess its name, so no link of theirs is followed. What killed
    programs left of writing this file is removed. A device or a pipe, which a user may name, is not
    replaced: `path` itself is yielded.

    Parameters
    ----------
    path : of the file.
    replaces : whether it is a file of otafl's own, of which a device or a pipe in its place is
        replaced too: it was not put there to be written to, and a pipe would not be read.

    Raises
    ------
    WriteError
        If the folder or the disk does not allow it; `path` is then as it was.
    """
    temporary = None
    try:
        if not replaces and _is_special(path):
            yield path
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = create_beside(path)
        yield temporary
        _flush(temporary)
        now = temporary.stat().st_mtime
        os.replace(temporary, path)
        _flush(path.parent)
        _remove_left(path, now)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file, as `written`."""
    with written(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a line for the names of the columns, and one for each row, as `written`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _is_special(path: Path) -> bool:
    """Say whether a path is a device, a pipe or a socket, or a name that the system keeps for what
    is open, like /dev/stdout: a rename would replace it.
    """
    try:
        mode, folder = path.stat().st_mode, path.parent.resolve()
    except OSError:
        return False
    system = folder == Path("/dev") or folder.is_relative_to("/proc")
    return system or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def create_beside(path: Path) -> Path:
    """Create a temporary file beside a path, under a name that others cannot guess.

    The name says where its program runs, and as which process.
    """
    only_new = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
    while True:
        token = f"{_namespace()}-{secrets.token_hex(4)}-{os.getpid()}"
        temporary = path.with_name(f".{path.name}.{token}.tmp")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(temporary, only_new, 0o666))
            return temporary


@functools.cache
def _namespace() -> str:
    """Return what the numbers of processes are unique in, hashed: a container of a machine, from
    one start of the machine to the next.
    """
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):  # not on Linux
        parts += [os.readlink("/proc/self/ns/pid")]
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _remove_left(path: Path, now: float) -> None:
    """Remove the temporary files that other programs left of writing a path.

    now: what the file system's clock says. A program of another container or machine counts as gone
    once its file is old.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]{{12}})-[0-9a-f]{{8}}-(\d+)\.tmp")
    for name in os.listdir(path.parent):
        found = pattern.fullmatch(name)
        if found is None:
            continue
        with contextlib.suppress(OSError):
            dead = found[1] == _namespace() and not _lives(int(found[2]))
            if dead or now - (path.parent / name).lstat().st_mtime > LEFT_S:
                (path.parent / name).unlink()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or nobody's
        pass
    return True


def _flush(path: Path) -> None:
    """Force a file's contents, or a folder's names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
