"""Write files that are whole or not there at all."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from otafl.core.errors import WriteError

HDF5 = b"\x89HDF\r\n\x1a\n"
"""The first bytes of a NetCDF-4 file."""


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path` to write to; then it is flushed to disk and renamed.
    What killed programs left of writing this file is removed.

    Raises WriteError where the folder or the disk does not allow it; `path` is then as it was.
    """
    mine = f".{path.name}.{socket.gethostname()}-"
    temporary = path.with_name(f"{mine}{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
        _remove_left(path.parent, mine)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
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


def _remove_left(folder: Path, start: str) -> None:
    """Remove the temporary files whose names start so and whose programs, of this machine, are
    dead."""
    for name in os.listdir(folder):
        pid = name.removeprefix(start).removesuffix(".tmp")
        if name == f"{start}{pid}.tmp" and pid.isdecimal() and not _lives(int(pid)):
            with contextlib.suppress(OSError):
                (folder / name).unlink()


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
