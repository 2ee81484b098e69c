"""Conversion of channel arrays, NumPy files and CSV files into traces."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from otafl.channels.trace_files import write
from otafl.core.errors import UserError

AXES = ("round", "device", "antenna", "group")
"""Dimensions of the frequency responses of a trace."""

NUMBERS = ("real", "imag")
"""Columns of a CSV file beside the dimensions, of which antenna and group may be missing."""


def convert_trace(
    source: Any, path: str | Path, *, carrier_hz: float, bandwidth_hz: float
) -> tuple[int, int, int, int]:
    """Write measured channels as a trace, which `channel: {name: trace, path: ...}` reads.

    Parameters
    ----------
    source : array, complex [rounds, devices[, antennas[, groups]]], str or Path
        Frequency responses at the centres of equal groups of sub-carriers; or a NumPy file (.npy)
        of such an array; or a CSV file with the columns round, device, antenna, group, real and
        imag, and a row for each response. Antenna and group may be left out. Numbers of rounds,
        devices, antennas and groups start at 0.
    path : str or Path
        NetCDF-4 file to write.
    carrier_hz, bandwidth_hz : float
        Carrier frequency, and bandwidth that the groups cover, in Hz.

    Returns
    -------
    tuple of int
        Numbers of rounds, devices, antennas and groups.

    Raises
    ------
    UserError
        If the array has another shape, is not finite, or the file cannot be read.
    """
    for name, value in (("carrier_hz", carrier_hz), ("bandwidth_hz", bandwidth_hz)):
        if not 0 < value < math.inf:
            raise UserError(f"{name}: got {value!r}; must be a positive number of hertz")
    label = "the array"
    if isinstance(source, str | Path):
        label = f"'{source}'"
        source = _read_csv(Path(source)) if Path(source).suffix == ".csv" else _read_npy(source)
    h = np.asarray(source)
    if h.ndim not in (2, 3, 4) or not h.size or h.dtype.kind not in "iufc":
        raise UserError(
            f"{label} has the shape {h.shape} and the type {h.dtype}; expected complex numbers "
            "(round, device), (round, device, antenna) or (round, device, antenna, group)"
        )
    if not np.isfinite(h).all():
        place = tuple(int(one) for one in np.argwhere(~np.isfinite(h))[0])
        raise UserError(
            f"{label} is not finite at {place} of the shape {h.shape}; write 0 for a device "
            "without a path"
        )
    h = h.reshape((*h.shape, 1, 1)[:4]).astype(np.complex128)
    write(path, carrier_hz, bandwidth_hz, h, "h", "group", {})
    rounds, devices, antennas, groups = h.shape
    return rounds, devices, antennas, groups


def _read_npy(file: str | Path) -> np.ndarray:
    try:
        return np.asarray(np.load(file, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not an array of numbers"
        raise UserError(f"'{file}' cannot be read ({reason}); give a .npy or .csv file") from error


def _read_csv(file: Path) -> np.ndarray:
    """Return the responses of a CSV file as an array; every place needs a row."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            rows = list(csv.DictReader(opened))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a table of text"
        raise UserError(f"'{file}' cannot be read ({reason}); give a .npy or .csv file") from error
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
    return h
