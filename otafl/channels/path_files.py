"""Files of devices' paths: CSV tables, and floating-car data of SUMO.

A CSV file has the columns time_s, device, x_m, y_m and optionally z_m, the height of the device.
Floating-car data have a `vehicle` or `person` with id, x and y in each `timestep`; their devices
are in the order in which they appear, and have no heights.

References
----------
Lopez et al. 2018, "Microscopic Traffic Simulation using SUMO"; its documentation, "FCDOutput".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.parsers import expat

import numpy as np

from otafl.core import csv_table
from otafl.core.errors import UserError
from otafl.core.files import read_bytes

KEY = "channel.mobility.path"
COLUMNS = ("time_s", "x_m", "y_m", "z_m", "device")

Row = tuple[int, float | str, list[float]]
"""Line, device, and its time, x, y and z, with NaN for numbers that are absent."""


def read_paths(file: str) -> list[np.ndarray]:
    """Read the positions of a file's devices, in order of time.

    Devices with a single position have no path, and are left out.

    Parameters
    ----------
    file : str
        CSV file, or floating-car data whose name ends in .xml.

    Returns
    -------
    list of ndarray [m, 4]
        Time, x, y and z of each device in seconds and metres; z is NaN without a height. Devices
        of a CSV file are in ascending order.

    Raises
    ------
    UserError
        If the file is no such file. The message names the line.
    """
    is_fcd = file.lower().endswith(".xml")
    paths: dict[float | str, dict[float, list[float]]] = {}
    for line, device, numbers in _read_fcd(file) if is_fcd else _read_csv(file):
        own, fault = paths.setdefault(device, {}), ""
        if not all(map(math.isfinite, numbers[:3])):
            fault = "expected a finite time, x and y of each position"
        elif isinstance(device, float) and (device != device // 1 or device < 0):
            fault = f"got device {device:g}; must be a whole number of at least 0"
        elif numbers[3] < 1.0:
            fault = f"z_m: got {numbers[3]:g}; must be a height of at least 1"
        elif numbers[0] in own:
            fault = f"a second position at time {numbers[0]:g} of a device; must be one"
        if fault:
            raise UserError(f"{KEY}: '{file}', line {line}: {fault}")
        own[numbers[0]] = numbers
    order = paths if is_fcd else sorted(paths, key=float)
    return [np.array(sorted(paths[device].values())) for device in order if len(paths[device]) > 1]


def _read_csv(file: str) -> Iterator[Row]:
    """Yield the positions of a CSV file."""
    for row in csv_table.read(file, KEY, COLUMNS):
        *numbers, device = (row.values.get(name, math.nan) for name in COLUMNS)
        yield row.line, device, numbers


def _read_fcd(file: str) -> list[Row]:
    """Return the positions of floating-car data."""
    rows: list[Row] = []
    parser, time = expat.ParserCreate(), math.nan

    def open_element(tag: str, found: dict[str, str]) -> None:
        nonlocal time
        if tag == "timestep":
            time = csv_table.parse_number(found.get("time", ""))
        elif tag in ("vehicle", "person"):
            place = [csv_table.parse_number(found.get(name, "")) for name in ("x", "y")]
            rows.append((parser.CurrentLineNumber, found.get("id", ""), [time, *place, math.nan]))

    parser.StartElementHandler = open_element
    try:
        parser.Parse(read_bytes(file, csv_table.MAX_BYTES), True)
    except (OSError, expat.ExpatError) as error:
        raise UserError(f"{KEY}: '{file}' cannot be read as floating-car data ({error})") from error
    return rows
