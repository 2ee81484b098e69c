"""Draw speed, memory, battery and radio of the devices, each from a law of its own.

They are drawn once for each device and trial, independently of each other. Each is a number or a
law: {uniform: [a, b]}, {lognormal: {median: m, sigma: s}}, {normal: {mean: m, std: s, least: a}}
(given that it is not below the least), {choice: [a, ..]} (all alike).

Each device has a uniform number for every quantity, drawn device by device, so that neither more
devices nor other laws change what the others are.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from otafl.devices.compute.base import (
    QUANTITIES,
    Columns,
    Compute,
    NumericCompute,
    bounds_of,
    number,
)
from otafl.devices.compute.laws import Law, Quantity


def _quantity(name: str) -> Any:
    info = NumericCompute.model_fields[name]
    return Field(info.default, description=f"{info.description}; a number or a law")


class Drawn(Compute):
    name: Literal["drawn"] = "drawn"
    flops_per_s: Quantity = Field(6e9, description="operations a second; a number or a law")
    flops_per_cycle: Quantity = _quantity("flops_per_cycle")
    kappa: Quantity = _quantity("kappa")
    frequency_min_share: Quantity = _quantity("frequency_min_share")
    memory_mb: Quantity | None = _quantity("memory_mb")
    battery_j: Quantity | None = _quantity("battery_j")
    charge: Quantity = _quantity("charge")
    restart: Quantity = _quantity("restart")
    harvest_w: Quantity = _quantity("harvest_w")
    circuit_w: Quantity = _quantity("circuit_w")
    receive_w: Quantity = _quantity("receive_w")
    idle_w: Quantity = _quantity("idle_w")
    sleep_w: Quantity = _quantity("sleep_w")
    efficiency: Quantity = _quantity("efficiency")
    power_db: Quantity = _quantity("power_db")

    @field_validator("flops_per_s", *QUANTITIES)
    @classmethod
    def _within(cls, value: float | Law | None, info: ValidationInfo) -> float | Law | None:
        """Refuse what could not be given, if it can be drawn."""
        if value is None:
            return value
        lowest, highest = _span(value)
        name = str(info.field_name)
        bounds = {"gt": 0.0} if name == "flops_per_s" else bounds_of(name)
        least = bounds.get("gt", bounds.get("ge", -math.inf))
        most = bounds.get("le", math.inf)
        if lowest < least or (lowest == least and "gt" in bounds):
            what = "above" if "gt" in bounds else "at least"
            raise ValueError(f"can be {lowest:g}; all that can be drawn must be {what} {least:g}")
        if highest > most:
            raise ValueError(f"can be {highest:g}; all that can be drawn must be at most {most:g}")
        return value

    def scales(self) -> bool:
        return _span(self.frequency_min_share)[0] < 1

    def columns(self, devices: int, generator: np.random.Generator) -> Columns:
        names = ("flops_per_s", *QUANTITIES)
        u = generator.random((devices, len(names)))
        columns = {}
        for place, name in enumerate(names):
            value = getattr(self, name)
            plain = value is None or isinstance(value, float)
            columns[name] = (
                np.full(devices, number(value)) if plain else value.quantile(u[:, place])
            )
        return columns


def _span(value: float | Law) -> tuple[float, float]:
    """Return the lowest and the highest that a quantity can be."""
    return (value, value) if isinstance(value, float) else value.span()
