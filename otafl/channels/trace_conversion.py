"""Conversion of channel arrays, NumPy files and CSV files into traces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from otafl.channels.trace_arrays import Format, read_arrays, to_responses
from otafl.channels.trace_files import write
from otafl.core.errors import UserError


def convert_trace(
    source: Any,
    path: str | Path,
    *,
    carrier_hz: float,
    bandwidth_hz: float,
    format: Format = "complex",
) -> tuple[int, int, int, int]:
    """Write measured channels as a trace, which `channel: {name: trace, path: ...}` reads.

    Parameters
    ----------
    source : array, complex [rounds, devices[, antennas[, groups]]], str or Path
        Frequency responses at the centres of equal groups of sub-carriers; or a NumPy file of such
        an array (.npy, or .npz with the array h); or a CSV file with the columns round, device,
        antenna, group, and real and imag or h, and a row for each response. Antenna and group may
        be left out. Numbers of rounds, devices, antennas and groups start at 0.
    path : str or Path
        NetCDF-4 file to write.
    carrier_hz, bandwidth_hz : float
        Carrier frequency, and bandwidth that the groups cover, in Hz.
    format : {"complex", "real_imag", "magnitude", "magnitude_db"}
        Meaning of the numbers, as of the key `channel.format`.

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
    if isinstance(source, str | Path):
        arrays = read_arrays(source, format)
        if "h" not in arrays:
            raise UserError(
                f"'{source}' has the arrays {', '.join(arrays) or 'none'}; expected h, the "
                "frequency responses"
            )
        h = arrays["h"]
    else:
        h = to_responses(source, "the array", format=format)
    write(path, carrier_hz, bandwidth_hz, h, "h", "group", {})
    rounds, devices, antennas, groups = h.shape
    return rounds, devices, antennas, groups
