"""The IDX format of MNIST's files (LeCun, Cortes, Burges, "The MNIST database", file formats):
a big-endian magic number, one 32-bit size for each dimension, then unsigned bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError

_LABELS = 0x0801  # unsigned bytes, one dimension
_IMAGES = 0x0803  # unsigned bytes, three dimensions
_GZIP = b"\x1f\x8b"


def read_images(path: Path) -> NDArray[np.uint8]:
    """[n, rows * columns] uint8, read-only, of a plain or gzipped file. UserError if it is not
    exactly an IDX image file."""
    return _read(path, _IMAGES, "images")


def read_labels(path: Path) -> NDArray[np.uint8]:
    """[n] uint8, read-only, of a plain or gzipped file. UserError if it is not exactly an IDX
    label file."""
    return _read(path, _LABELS, "labels")


def _read(path: Path, magic: int, kind: str) -> NDArray[np.uint8]:
    content = _content(path)
    dimensions = magic & 0xFF
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise UserError(f"{path}: truncated, {len(content)} bytes are less than an IDX header")
    found, *sizes = struct.unpack(f">{1 + dimensions}I", content[:header])
    if found != magic:
        raise UserError(
            f"{path}: not an IDX file of {kind}: its magic number is 0x{found:08x}, "
            f"not 0x{magic:08x}"
        )
    expected, held = math.prod(sizes), len(content) - header
    if held != expected:
        fault = "truncated" if held < expected else "too long"
        shape = " x ".join(str(size) for size in sizes)
        raise UserError(
            f"{path}: {fault}, its header announces {shape} = {expected} bytes of {kind} and "
            f"{held} follow"
        )
    values = np.frombuffer(content, np.uint8, offset=header)
    return values.reshape(sizes[0], *([math.prod(sizes[1:])] if dimensions > 1 else []))


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if content[:2] == _GZIP:
        try:
            return gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path}: truncated or corrupt gzip file: {error}") from error
    if path.suffix == ".gz":
        raise UserError(f"{path}: its name ends in .gz but it is not a gzip file")
    return content
