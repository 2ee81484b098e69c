"""SHA-256 checksums of whole files.

A NetCDF-4 file or a zip archive of `torch.save` that otafl writes ends with `otafl-sha256:` and the
hexadecimal SHA-256 of all bytes before. Other readers of these formats do not notice: HDF5 stores
where its own bytes end, and in a zip archive the text is the comment. The checksum belongs to the
file: what xarray or torch writes again has none.

Older files have no checksum, and end where their format says. Any other end is damage, also one
in which the checksum cannot be recognised any more.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

from otafl.core.files import HDF5
from otafl.core.inputs import open_regular

MARK = b"otafl-sha256:"
LENGTH = len(MARK) + 64
"""Bytes of a checksum at the end of a file."""

ZIP = b"PK\x03\x04"
ZIP_END = struct.Struct("<4s16xH")
"""The record that ends a zip archive: its signature, and the length of the comment that follows."""


class ChecksumError(ValueError):
    """Bytes that are not those that were written."""


def append(path: Path) -> None:
    """Append the checksum to a file that was just written, a zip archive or NetCDF-4.

    Raises OSError where the disk does not allow it.
    """
    with path.open("r+b") as file:
        if file.read(len(ZIP)) == ZIP:
            file.seek(-2, os.SEEK_END)
            file.write(struct.pack("<H", LENGTH))
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0, os.SEEK_END)
        file.write(MARK + digest.encode())


def check(path: Path) -> bool:
    """Compare a file with its checksum, and return whether it has one.

    Of an older zip archive the CRC-32 of its contents are compared; an older NetCDF-4 file has
    checksums of its chunks, which HDF5 compares where they are read.

    Raises ChecksumError where they differ or the file does not end as it should, OSError where it
    cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        begin = file.read(64)
        file.seek(max(0, size - LENGTH))
        end = file.read(LENGTH)
        if end.startswith(MARK):
            if _compute_digest(file, size - LENGTH) != end[len(MARK) :]:
                raise ChecksumError("its SHA-256 is not the one that it was written with")
            return True
    if begin.startswith(ZIP):
        if len(end) < ZIP_END.size or ZIP_END.unpack(end[-ZIP_END.size :]) != (b"PK\x05\x06", 0):
            raise ChecksumError("it does not end as it was written")
        _check_crc(path)
    elif begin.startswith(HDF5) and _find_hdf5_end(begin) != size:
        raise ChecksumError("it does not end as it was written")
    return False


def _compute_digest(file: BinaryIO, size: int) -> bytes:
    """Return the hexadecimal SHA-256 of the first bytes of a file."""
    digest = hashlib.sha256()
    file.seek(0)
    while size and (block := file.read(min(size, 2**20))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


def _check_crc(path: Path) -> None:
    """Compare the CRC-32 of a zip archive's contents, which `torch.save` never compresses."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(one.compress_type != zipfile.ZIP_STORED for one in entries) or (
                sum(one.file_size for one in entries) > path.stat().st_size
            ):
                raise ChecksumError("it is compressed, which torch.save never does")
            wrong = archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ChecksumError(f"it is no whole archive ({error})") from error
    if wrong is not None:
        raise ChecksumError(f"the CRC-32 of {wrong} is not the one that it was written with")


def _find_hdf5_end(begin: bytes) -> int:
    """Return the end of the HDF5 bytes according to the superblock; -1 for an unknown superblock.

    See HDF5 File Format Specification 3.0, section II.A; addresses have 8 bytes.
    """
    begin = begin.ljust(64, b"\0")
    place = {0: 40, 1: 44, 2: 28, 3: 28}.get(begin[len(HDF5)], -1)
    return -1 if place < 0 else int(struct.unpack_from("<Q", begin, place)[0])
