"""Writing and reading of files.

A file that is written is complete, or does not exist. Of files that another person may have written
only regular ones up to a size are read: a named pipe would block the program, and a device such as
/dev/zero would fill its memory.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from otafl.core.errors import UserError, WriteError

HDF5 = b"\x89HDF\r\n\x1a\n"
"""The first bytes of a NetCDF-4 file."""


HASHED = re.compile(r"[0-9a-f]{16}\.(nc|pt)")
"""Names of the files of stacks, which tell them from a user's."""

TEMPORARY = r"[0-9a-f]{16}\.tmp"
"""How the names of temporary files end, see `create_beside`."""

OWN_NAME = re.compile(
    rf"({HASHED.pattern}(\.damaged)?|(sweep|sizes)\.json)"
    r"(\.sha256)?|([0-9a-f]{16}|sweep|run)\.lock|[0-9a-f]{16}\.txt"
    rf"|trial_\d+\.jsonl|events\.out\.tfevents\.otafl|\.[^/]+\.{TEMPORARY}"
)
"""Names of the files in folders that only otafl names, see `otafl.sweeping.store`."""

STALE_AFTER_S = 86400.0
"""Age in seconds at which a temporary file counts as left by a program that has ended."""


@contextlib.contextmanager
def write_atomically(path: Path, replaces: bool = False) -> Iterator[Path]:
    """Yield a temporary file next to `path`; afterwards it is flushed to disk and renamed.

    The file is new and has a name that others cannot guess, so it follows no link of theirs.
    Temporary files of killed programs for the same path are removed once they are a day old. A
    device or a pipe, which a user may name, is not replaced: `path` itself is yielded.

    Parameters
    ----------
    path : Path
        Path of the file.
    replaces : bool, default False
        Whether the file belongs to otafl. Then a device or a pipe at the path is replaced too,
        because the user did not name it as a target.

    Raises
    ------
    WriteError
        If the folder or the disk does not allow it; `path` is then unchanged.
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
        # remove the temporary files for a path that are old by the clock of the file system
        pattern = re.compile(rf"\.{re.escape(path.name)}\.{TEMPORARY}")
        for one in path.parent.iterdir():
            with contextlib.suppress(OSError):
                if pattern.fullmatch(one.name) and now - one.lstat().st_mtime > STALE_AFTER_S:
                    one.unlink()
    except OSError as error:
        reason = error.strerror or (temporary and _find_reason(temporary)) or error
        raise WriteError(f"{path}: cannot be written: {reason}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _find_reason(path: Path) -> str:
    """Return the system's reason why a file cannot grow, which torch and HDF5 do not tell."""
    try:
        with path.open("ab") as file:
            file.write(bytes(MIB))
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or ""
    return ""


def write_text(path: Path, text: str, replaces: bool = False) -> None:
    """Write a text file, as `write_atomically`."""
    with write_atomically(path, replaces) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a line with the names of the columns, and one for each row, as `write_atomically`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def list_own(folder: Path, suffix: str) -> list[Path]:
    """List the files of stacks in a folder."""
    return sorted(path for path in folder.glob(f"*{suffix}") if HASHED.fullmatch(path.name))


def refuse_links(*folders: Path) -> None:
    """Raise UserError if a folder that only otafl names is a link: others may have made it."""
    for folder in folders:
        if folder.is_symlink():
            raise UserError(
                f"{folder}: expected a folder of otafl's own, got a link to {os.readlink(folder)}; "
                "remove the link, or give another place with --out"
            )


def remove_own(folder: Path) -> None:
    """Remove otafl's files in a folder and below, and the folders that are then empty.

    Links are not followed, and what has a name that otafl does not give stays. Raises OSError.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for _, folders, files, handle in os.fwalk(folder, topdown=False):
        for name in filter(OWN_NAME.fullmatch, files):
            os.unlink(name, dir_fd=handle)
        for name in folders:
            with contextlib.suppress(OSError):  # it is a link, or holds what is not otafl's
                os.rmdir(name, dir_fd=handle)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe, a socket or a name of the system like /dev/stdout.

    A rename would replace it.
    """
    try:
        mode, folder = path.stat().st_mode, path.parent.resolve()
    except OSError:
        return False
    system = folder == Path("/dev") or folder.is_relative_to("/proc")
    return system or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def create_beside(path: Path) -> Path:
    """Create a temporary file next to a path, under a name that others cannot guess."""
    only_new = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(temporary, only_new, 0o666))
            return temporary


def _flush(path: Path) -> None:
    """Force a file's contents, or a folder's names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


MIB = 1 << 20

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular(path: Path | str, most_bytes: int | None = None) -> io.BufferedReader:
    """Open a regular file for reading.

    Parameters
    ----------
    path : Path or str
        Path of the file; links are followed.
    most_bytes : int, optional
        Largest size that is opened. By default there is no bound.

    Raises
    ------
    OSError
        If there is no such file, it is not regular, or it is larger. `strerror` names the reason.
    """
    # without O_NONBLOCK, a pipe without a writer would block here
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            kind = next((name for is_kind, name in _KINDS if is_kind(about.st_mode)), "special")
            number = errno.EISDIR if stat.S_ISDIR(about.st_mode) else errno.EINVAL
            raise OSError(number, f"is {kind}, not a regular file", str(path))
        if most_bytes is not None and about.st_size > most_bytes:
            said = f"has more than {most_bytes / MIB:,.0f} MiB"
            raise OSError(errno.EFBIG, said, str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: Path | str, most_bytes: int) -> bytes:
    """Read a whole regular file. Raises OSError as `open_regular`, also if it grows meanwhile."""
    with open_regular(path, most_bytes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"has more than {most_bytes / MIB:,.0f} MiB", str(path))
    return content


def read_text(path: Path | str, most_bytes: int) -> str:
    """Read a whole regular file of UTF-8 text.

    Raises OSError as `open_regular`, and UnicodeDecodeError (a ValueError).
    """
    return read_bytes(path, most_bytes).decode("utf-8")
