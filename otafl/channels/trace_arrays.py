"""Reading of channels from NumPy files and CSV files.

    .npy   array (round, device), (round, device, antenna) or (round, device, antenna, group) of
           frequency responses
    .npz   array `h` or `a`, or the variables and attributes of a trace by their names; an archive
           of a single array is read as .npy
    .csv   columns round, device, antenna, group, real and imag, and a row for each response;
           antenna and group may be left out; numbers start at 0

Nothing that a file contains is run: arrays of Python objects are refused.
"""

from __future__ import annotations

import csv
import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import UserError
from otafl.core.inputs import open_regular

AXES = ("round", "device", "antenna", "group")
"""Dimensions of the frequency responses of a trace."""

NUMBERS = ("real", "imag")
"""Columns of a CSV file beside the dimensions, of which antenna and group may be missing."""

SUFFIXES = (".npy", ".npz", ".csv")
"""Ends of the names of files that are read here."""

MAX_BYTES = 1 << 33
"""Largest size of a file's arrays, which are kept in memory."""


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Read a file of `SUFFIXES` from an untrusted source.

    Parameters
    ----------
    path : str or Path
        File.

    Returns
    -------
    dict of str to ndarray
        Arrays by their names; `h` [R, K, A, F] for frequency responses.

    Raises
    ------
    UserError
        If the file cannot be read, or the responses have another shape, type or are not finite.
    """
    label, suffix = f"'{path}'", Path(path).suffix
    if suffix == ".csv":
        return {"h": _read_csv(Path(path))}
    try:
        with open_regular(path, MAX_BYTES) as opened:
            found = _read_archive(opened, label) if suffix == ".npz" else {"h": _read_npy(opened)}
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not an array of numbers"
        raise UserError(
            f"{label} cannot be read ({reason}); give a .npy, .npz or .csv file"
        ) from error
    if len(found) == 1 and "h" not in found:
        found = {"h": next(iter(found.values()))}
    return {
        name: to_responses(value, f"{name} of {label}" if suffix == ".npz" else label, name)
        if name in ("h", "a")
        else value
        for name, value in found.items()
    }


def to_responses(source: Any, label: str, name: str = "h") -> np.ndarray:
    """Return responses as an array, complex [R, K, A, F], or with paths [R, K, A, L].

    Parameters
    ----------
    source : array
        Numbers (round, device), (round, device, antenna) or (round, device, antenna, group).
        Amplitudes of paths have all four dimensions.
    label : str
        Name in messages.
    name : {"h", "a"}
        Frequency responses, or amplitudes of paths.

    Raises
    ------
    UserError
        If the array has another shape or type, or is not finite.
    """
    h = np.asarray(source)
    ndims = (4,) if name == "a" else (2, 3, 4)
    if h.ndim not in ndims or not h.size or h.dtype.kind not in "iufc":
        expected = (
            "(round, device, antenna, path)"
            if name == "a"
            else "(round, device), (round, device, antenna) or (round, device, antenna, group)"
        )
        raise UserError(
            f"{label} has the shape {h.shape} and the type {h.dtype}; expected complex numbers "
            f"{expected}"
        )
    if not np.isfinite(h).all():
        place = tuple(int(one) for one in np.argwhere(~np.isfinite(h))[0])
        raise UserError(
            f"{label} is not finite at {place} of the shape {h.shape}; write 0 for a device "
            "without a path"
        )
    return h.reshape((*h.shape, 1, 1)[:4]).astype(np.complex128)


def _read_npy(opened: Any) -> np.ndarray:
    found = np.load(opened, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise ValueError("an archive of arrays")
    return found


def _read_archive(opened: Any, label: str) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file, which may not grow beyond `MAX_BYTES`."""
    with zipfile.ZipFile(opened) as archive:
        if sum(one.file_size for one in archive.infolist()) > MAX_BYTES:
            raise UserError(
                f"{label} has more than {MAX_BYTES >> 30} GiB, and a trace is kept in memory; use "
                "fewer rounds, devices or groups"
            )
        return {
            name.removesuffix(".npy"): _read_npy(io.BytesIO(archive.read(name)))
            for name in archive.namelist()
        }


def _read_csv(file: Path) -> np.ndarray:
    """Return the responses of a CSV file as an array [R, K, A, F]; every place needs a row."""
    try:
        with (
            open_regular(file, MAX_BYTES) as opened,
            io.TextIOWrapper(opened, encoding="utf-8-sig", newline="") as text,
        ):
            rows = list(csv.DictReader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a table of text"
        raise UserError(
            f"'{file}' cannot be read ({reason}); give a .npy, .npz or .csv file"
        ) from error
    given = list(rows[0]) if rows else []
    if not {"round", "device", *NUMBERS} <= set(given):
        raise UserError(
            f"'{file}' has the columns {', '.join(map(str, given)) or 'none'}; expected "
            f"{', '.join((*AXES, *NUMBERS))}, of which antenna and group may be missing"
        )
    places = []
    for line, row in enumerate(rows, 2):
        try:
            value = complex(float(row["real"]), float(row["imag"]))
            places.append((*(int(row.get(axis) or 0) for axis in AXES), value))
        except (TypeError, ValueError) as error:
            raise UserError(f"'{file}', line {line}: expected numbers, got {row}") from error
    index = np.array([place[:4] for place in places])
    shape = tuple(int(one) + 1 for one in index.max(0))
    count = len({*map(tuple, index.tolist())})
    if index.min() < 0 or not count == math.prod(shape) == len(places):
        raise UserError(
            f"'{file}' has {len(places)} rows, and its numbers make the shape {shape} (round, "
            f"device, antenna, group); expected a row for each of {math.prod(shape)} places"
        )
    h = np.zeros(shape, np.complex128)
    h[tuple(index.T)] = [place[4] for place in places]
    return to_responses(h, f"'{file}'")
