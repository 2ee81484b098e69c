"""Reading of channels from NumPy files and CSV files.

    .npy   array (round, device), (round, device, antenna) or (round, device, antenna, group) of
           frequency responses
    .npz   array `h` or `a`, or the variables and attributes of a trace by their names; an archive
           of a single array is read as .npy
    .csv   columns round, device, antenna, group, and real and imag or h, such as (1+2j), and a row
           for each response; antenna and group may be left out; numbers start at 0. Or an array
           (round, device) as `numpy.savetxt` and pandas write it

Nothing that a file contains is run: arrays of Python objects are refused.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.arrays import to_numbers, to_single
from otafl.core.errors import UserError
from otafl.core.inputs import open_regular

AXES = ("round", "device", "antenna", "group")
"""Dimensions of the frequency responses of a trace."""

COLUMNS = "the columns round, device, antenna, group, and real, imag or h; some may be missing"
"""Columns of a CSV file, for messages."""

CONVERT = "save its array of complex numbers by numpy.save; scipy.io.loadmat or h5py reads it"
"""Remedy for files of other formats."""

FINITE = "expected finite numbers up to 3.4e38, and 0 for a device without a path"
"""Expected numbers of a trace, for messages."""

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
    if suffix not in SUFFIXES:
        raise UserError(f"{label} ends in none of {', '.join(SUFFIXES)}; {CONVERT}")
    try:
        with open_regular(path, MAX_BYTES) as opened:
            if suffix == ".npz":
                found = _read_archive(opened, label)
            else:
                found = {"h": _read_csv(opened, label) if suffix == ".csv" else _read_npy(opened)}
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
    h = to_numbers(source, label, "complex numbers", "iufc")
    if h.dtype.kind != "c":
        raise UserError(
            f"{label}: got {h.dtype.name} {list(h.shape)}; expected complex numbers: of parts x "
            "and y save x + 1j * y, of magnitudes x + 0j, in decibels 10 ** (x / 20) + 0j"
        )
    if h.ndim not in ((4,) if name == "a" else (2, 3, 4)) or not h.size:
        axes = "antenna, path" if name == "a" else "[antenna[, group]]"
        raise UserError(f"{label} has the shape {h.shape}; expected (round, device, {axes})")
    to_single(h, label, "numbers", AXES, FINITE)
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


def _read_csv(opened: Any, label: str) -> np.ndarray:
    """Return the numbers of a CSV file: [R, K, A, F] of named columns, or else [R, K]."""
    rows = _read_rows(opened.read().decode("utf-8-sig"))
    heads = ([cell.lstrip("#") for cell in row] for row in rows.values())
    names = next((head for head in heads if {"round", "device"} <= {*head}), [])
    rows = {n: row for n, row in rows.items() if not row[0].startswith("#") and row != names}
    parts = [part for part in ("real", "imag", "h") if part in names]
    if not rows or (names and parts not in (["real", "imag"], ["h"])):
        given = f"has the columns {', '.join(names) or 'none'} (rows: {len(rows)})"
        raise UserError(f"{label} {given}; expected {COLUMNS}")
    if not names:
        line, first = next(iter(rows.items()))
        columns = range(int(first[0] == ""), len(first))  # pandas' index has no name
        if [first[column] for column in columns] == [str(n) for n in range(len(columns))]:
            del rows[line]  # pandas numbers the columns
        return _parse_rows(label, rows, columns, len(first))
    axes = [axis for axis in AXES if axis in names]
    table = _parse_rows(label, rows, [names.index(name) for name in (*axes, *parts)], len(names))
    index, values = table[:, : len(axes)], table[:, len(axes) :]
    wrong = (index != np.rint(index.real)) | ~((index.real >= 0) & (index.real < MAX_BYTES))
    if wrong.any():
        line, row = [*rows.items()][wrong.any(1).argmax()]
        raise UserError(
            f"{label}, line {line}: expected whole numbers from 0 in {', '.join(axes)}, got "
            f"{', '.join(row)}"
        )
    place = np.zeros((len(rows), 4), np.int64)
    place[:, [AXES.index(axis) for axis in axes]] = index.real
    shape = tuple(int(most) + 1 for most in place.max(0))
    if not len(np.unique(place, axis=0)) == math.prod(shape) == len(rows):
        raise UserError(
            f"{label} has {len(rows)} rows, and its numbers make the shape {shape} (round, "
            f"device, antenna, group); expected a row for each of {math.prod(shape)} places"
        )
    numbers = values[:, 0] if parts == ["h"] else values[:, 0] + 1j * values[:, 1]
    h = np.zeros(shape, numbers.dtype)
    h[tuple(place.T)] = numbers
    return h


def _read_rows(text: str) -> dict[int, list[str]]:
    """Return the cells of the lines of a table, which are apart by commas, or else by blanks.

    Lines without cells are left out. The first cell of a comment starts with `#`.
    """
    rows = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = "#" + line.lstrip("# ") if line.startswith("#") else line
        cells = line.replace('"', "").split("," if "," in line else None)
        rows[number] = [cell.strip() for cell in cells]
    return {number: cells for number, cells in rows.items() if any(cells)}


def _parse_rows(
    label: str, rows: dict[int, list[str]], columns: Sequence[int], width: int
) -> np.ndarray:
    """Return the numbers in some columns of rows, which have `width` cells."""
    table = []
    for line, row in rows.items():
        try:
            cells = [row[column] for column in columns]
            table.append([complex(cell) if "j" in cell else float(cell) for cell in cells])
            if len(row) != width:
                raise ValueError(f"{len(row)} cells")
        except (IndexError, ValueError) as error:
            raise UserError(
                f"{label}, line {line}: expected numbers such as 0.5 or (1+2j) in {width} columns, "
                f"got {', '.join(row)}; a table has {COLUMNS}"
            ) from error
    return np.array(table)
