"""SHA-256 of files, in small text files beside them.

`snr.nc.sha256` has the line that `sha256sum` writes for `snr.nc`, and a file `SHA256SUMS` such
lines for many files of its folder. A file for which neither has a line has no checksum.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from pydantic import ValidationError

from otafl.core.errors import DamagedError
from otafl.core.files import MIB, open_regular, read_bytes, write_atomically

SUFFIX = ".sha256"
OF_FOLDER = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


class ChecksumError(ValueError):
    """Bytes that are not those that were written."""


def get_path(path: Path) -> Path:
    """Return the file with the checksum of a file."""
    return path.with_name(path.name + SUFFIX)


def forget(path: Path) -> None:
    """Remove the checksum of a file that is about to be replaced.

    If the program is killed in between, the file has no checksum, but never a wrong one.
    """
    get_path(path).unlink(missing_ok=True)


def write(path: Path) -> None:
    """Write the checksum of a file. Raises WriteError where the disk does not allow it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with write_atomically(get_path(path), replaces=True) as temporary:
        temporary.write_bytes(os.fsencode(f"{digest}  {path.name}\n"))


def check(path: Path) -> bool:
    """Compare a file with its checksum, and return whether it has one.

    Raises ChecksumError where they differ, OSError where the file cannot be read.
    """
    wanted = find_digest(path)
    if wanted is None:
        return False
    with open_regular(path) as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
            raise ChecksumError("its SHA-256 is not the one that it was written with")
    return True


def find_digest(path: Path) -> str | None:
    """Return the digest that is written for a file; None without one."""
    for source in (get_path(path), path.with_name(OF_FOLDER)):
        try:
            lines = os.fsdecode(read_bytes(source, MIB)).splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            found = LINE.fullmatch(line)
            if found and found[2] == path.name:
                return found[1]
    return None


def format_reason(error: BaseException) -> str:
    """Return in a line what an error found in a file: its first fault."""
    if isinstance(error, DamagedError):
        return error.reason
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
