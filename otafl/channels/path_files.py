"""Files of devices' paths: CSV tables, and floating-car data of SUMO.

A CSV file has the columns time_s, device, x_m, y_m and optionally z_m, the height of the device.
Floating-car data have a `vehicle` or `person` with id, x and y in each `timestep`; their devices
are in the order in which they appear, and have no heights.

References
----------
Lopez et al. 2018, "Microscopic Traffic Simulation using SUMO"; its documentation, "FCDOutput".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple
from xml.parsers import expat

from otafl.core import csv_table
from otafl.core.errors import UserError
from otafl.core.files import read_bytes

KEY = "channel.mobility.path"
COLUMNS = ("time_s", "device", "x_m", "y_m", "z_m")
HEIGHTS_M = (1.0, 100.0)
"""Heights that a device can have."""


class Fix(NamedTuple):
    """Position of a device at a time, in metres and seconds; z_m is NaN without a height."""

    time_s: float
    x_m: float
    y_m: float
    z_m: float


def read_fixes(file: str) -> list[list[Fix]]:
    """Read the positions of a file's devices, in order of time.

    Devices with a single position have no path, and are left out.

    Parameters
    ----------
    file : str
        CSV file, or floating-car data whose name ends in .xml.

    Returns
    -------
    list of list of Fix
        Positions of each device.

    Raises
    ------
    UserError
        If the file is no such file. The message names the line.
    """
    rows = _read_fcd(file) if file.lower().endswith(".xml") else _read_csv(file)
    devices = []
    for name, own in rows.items():
        times = sorted(own)
        for before, line in itertools.pairwise(times):
            if before[0].time_s == line[0].time_s:
                raise _make_error(
                    file,
                    line[1],
                    f"device {name} is twice at time {line[0].time_s:g}; must be once",
                )
        if len(own) > 1:
            devices.append([fix for fix, _ in times])
    if not devices:
        raise UserError(f"{KEY}: '{file}' has no device with two positions; must have one")
    return devices


def _make_error(file: str, line: int, fault: str) -> UserError:
    """Return the error of a line."""
    return UserError(f"{KEY}: '{file}', line {line}: {fault}")


def _read_csv(file: str) -> dict[int, list[tuple[Fix, int]]]:
    """Read the positions of a CSV file and their lines, for each device in ascending order."""
    rows: dict[int, list[tuple[Fix, int]]] = {}
    for row in csv_table.read(file, KEY, COLUMNS):
        time_s, device, x_m, y_m, z_m = (row.values.get(name, math.nan) for name in COLUMNS)
        if math.isnan(time_s + device + x_m + y_m):
            raise _make_error(
                file, row.line, "must have a number in each of time_s, device, x_m, y_m"
            )
        if device != int(device) or device < 0:
            raise _make_error(
                file, row.line, f"got device {device:g}; must be a whole number of at least 0"
            )
        if not math.isnan(z_m) and not HEIGHTS_M[0] <= z_m <= HEIGHTS_M[1]:
            raise _make_error(
                file, row.line, f"z_m: got {z_m:g}; must be a height of 1 to 100 m above ground"
            )
        rows.setdefault(int(device), []).append((Fix(time_s, x_m, y_m, z_m), row.line))
    return dict(sorted(rows.items()))


def _read_fcd(file: str) -> dict[str, list[tuple[Fix, int]]]:
    """Read the positions of floating-car data and their lines, for each device as it appears."""
    rows: dict[str, list[tuple[Fix, int]]] = {}
    parser, time_s = expat.ParserCreate(), math.nan

    def read_number(found: Mapping[str, str], name: str) -> float:
        try:
            value = float(found[name])
        except (KeyError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            got = found.get(name, "nothing")
            raise _make_error(
                file, parser.CurrentLineNumber, f"{name}: got '{got}'; must be a finite number"
            )
        return value

    def open_element(tag: str, found: dict[str, str]) -> None:
        nonlocal time_s
        if tag == "timestep":
            time_s = read_number(found, "time")
        elif tag in ("vehicle", "person"):
            fix = Fix(time_s, read_number(found, "x"), read_number(found, "y"), math.nan)
            rows.setdefault(found.get("id", ""), []).append((fix, parser.CurrentLineNumber))

    def refuse_entity(*_: object) -> None:
        raise _make_error(file, parser.CurrentLineNumber, "must define no entities")

    parser.StartElementHandler, parser.EntityDeclHandler = open_element, refuse_entity
    try:
        parser.Parse(read_bytes(file, csv_table.MAX_BYTES), True)
    except (OSError, expat.ExpatError) as error:
        raise UserError(
            f"{KEY}: '{file}' cannot be read ({getattr(error, 'strerror', '') or error}); must be "
            "floating-car data of SUMO"
        ) from error
    return rows
