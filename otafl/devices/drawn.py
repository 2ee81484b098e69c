"""Devices drawn from laws, or read from a file: their quantities as columns over the devices."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
from pydantic import ValidationError
from scipy.special import ndtr, ndtri

from otafl.core.errors import UserError
from otafl.devices import csv_table
from otafl.devices.config_drawn import (
    ChoiceLaw,
    CsvComputeConfig,
    CsvDevice,
    DrawnComputeConfig,
    Law,
    LognormalLaw,
    UniformLaw,
)
from otafl.devices.config_hardware import QUANTITIES

Columns = dict[str, np.ndarray]
"""Quantity -> float64 [K]."""


def drawn(config: DrawnComputeConfig, devices: int, generator: np.random.Generator) -> Columns:
    """The quantities of so many devices. Each has a uniform number for every quantity, drawn device
    by device, so that neither more devices nor other laws change what the others are."""
    names = ("flops_per_s", *QUANTITIES)
    u = generator.random((devices, len(names)))
    columns = {}
    for place, name in enumerate(names):
        value = getattr(config, name)
        if value is None or isinstance(value, float):
            columns[name] = np.full(devices, math.inf if value is None else value)
        else:
            columns[name] = quantile(value, u[:, place])
    return columns


def quantile(law: Law, u: np.ndarray) -> np.ndarray:
    """What uniform numbers [n] in [0, 1) are under a law."""
    if isinstance(law, UniformLaw):
        low, high = law.uniform
        return low + (high - low) * u
    if isinstance(law, ChoiceLaw):
        values = np.array(law.choice)
        return values[(u * len(values)).astype(np.int64)]
    u = np.maximum(u, 2.0**-54)  # 0 has no normal quantile
    if isinstance(law, LognormalLaw):
        return law.lognormal.median * np.exp(law.lognormal.sigma * ndtri(u))
    normal = law.normal
    above = ndtr((normal.mean - normal.least) / normal.std)  # P(X >= least), at least 1/2
    return np.maximum(normal.least, normal.mean - normal.std * ndtri(u * above))


def from_file(config: CsvComputeConfig, devices: int) -> Columns:
    """The quantities that the file has, of so many devices."""
    path = Path(config.file)
    stamp = path.stat().st_mtime_ns if path.exists() else 0
    rows = _rows(config.file, stamp)
    columns = {}
    for name in ("flops_per_s", "frequency_hz", *QUANTITIES):
        own = [getattr(row, name) for row in rows]
        if any(value is not None for value in own):
            section = getattr(config, name, None)
            section = math.inf if section is None else section
            full = np.array([section if value is None else value for value in own])
            columns[name] = np.resize(full, devices)
    cycle = columns.get("flops_per_cycle", config.flops_per_cycle)
    by_frequency = columns.pop("frequency_hz", np.array(math.inf)) * cycle
    speed = columns.get("flops_per_s", by_frequency)
    columns["flops_per_s"] = np.where(np.isinf(speed), by_frequency, speed)
    return columns


@functools.lru_cache(maxsize=4)
def _rows(file: str, stamp: int) -> tuple[CsvDevice, ...]:
    """The devices of a file that was last changed at `stamp`; UserError where it has others."""
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
