"""Devices from a CSV file, with a row for each.

Devices take the rows in order, and repeat them if there are fewer rows than devices. Columns have
the names of the section's fields. `flops_per_s` or `frequency_hz` is required. A device has the
section's value of a column that is missing or empty.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationError

from otafl.core.errors import UserError
from otafl.devices import csv_table
from otafl.devices.compute.base import (
    QUANTITIES,
    Columns,
    NumericCompute,
    OwnQuantities,
    build_common_columns,
    list_owned,
)


class CsvDevice(OwnQuantities):
    """Device in a row of a file."""

    flops_per_s: float | None = Field(None, gt=0)
    """operations per second"""
    frequency_hz: float | None = Field(None, gt=0)
    """highest clock frequency"""


class Csv(NumericCompute):
    """Devices of a file."""

    example: ClassVar = {"devices.compute.file": "devices.csv"}

    name: Literal["csv"] = "csv"
    file: str = Field(min_length=1)
    """CSV file with a line for each device"""

    def has_frequency_scaling(self) -> bool:
        return True  # unknown before the file is read

    @property
    def is_in_order(self) -> bool:
        return True

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        path = Path(self.file)
        rows = _read_rows(self.file, path.stat().st_mtime_ns if path.exists() else 0)
        own = list_owned(rows, self, ("flops_per_s", "frequency_hz", *QUANTITIES))
        columns = build_common_columns(self, devices, np.inf)
        columns |= {name: np.resize(values, devices) for name, values in own.items()}
        speed, frequency = columns["flops_per_s"], columns.pop("frequency_hz", np.inf)
        by_frequency = frequency * columns["flops_per_cycle"]
        return columns | {"flops_per_s": np.where(np.isinf(speed), by_frequency, speed)}


@functools.lru_cache(maxsize=4)
def _read_rows(file: str, stamp: int) -> tuple[CsvDevice, ...]:
    """Read the devices of a file that was last changed at `stamp`.

    Raises UserError if a row is not a device.
    """
    key, known = "devices.compute.file", tuple(CsvDevice.model_fields)
    devices = []
    for row in csv_table.read(file, key, known):
        where = f"{key}: '{file}', line {row.line}"
        try:
            device = CsvDevice.model_validate(row.values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            must = first["msg"].removeprefix("Input should be ")
            raise UserError(
                f"{where}, column '{first['loc'][0]}': got {first['input']:g}; must be {must}"
            ) from error
        if (device.flops_per_s is None) == (device.frequency_hz is None):
            raise UserError(f"{where}: must have one of the columns flops_per_s and frequency_hz")
        devices.append(device)
    return tuple(devices)
