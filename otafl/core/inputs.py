"""Reading of files that another person may have written: only regular files up to a size.

A named pipe would block the program, and a device such as /dev/zero would fill its memory.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

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
