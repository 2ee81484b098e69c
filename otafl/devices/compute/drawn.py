"""Devices whose speed, memory, battery and radio follow distributions.

The quantities are drawn once for each device and trial, independently of each other. Each is a
number or a distribution: {uniform: [a, b]}, {lognormal: {median: m, sigma: s}}, or {choice: [a,
..]}, with equal probabilities.

Every device has a uniform number for each quantity, which the quantile function of the distribution
maps. More devices, or other distributions of other quantities, therefore do not change a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_serializer,
)
from scipy import special

from otafl.core.settings import Settings
from otafl.devices.compute.base import (
    QUANTITIES,
    Columns,
    NumericCompute,
    get_bounds,
    to_number,
)

LEAST = 2.0**-54
"""Uniform number that replaces 0, which has no normal quantile."""


class _Lognormal(Settings):
    """Parameters of a log-normal distribution."""

    median: float = Field(gt=0, le=1e30)
    """median of the values"""
    sigma: float = Field(ge=0, le=20)  # a larger one exceeds the range of float64
    """standard deviation of the natural logarithm"""


class QuantityLaw(Settings):
    """Distribution of a quantity, one of these."""

    uniform: tuple[float, float] | None = None
    """lower and upper end of a uniform distribution"""
    lognormal: _Lognormal | None = None
    """median and sigma of median exp(sigma z) with z ~ N(0, 1)"""
    choice: tuple[float, ...] | None = Field(None, min_length=1)
    """values with equal probabilities"""

    def find_conflicts(self) -> Iterator[str]:
        given = [name for name, own in self if own is not None]
        if len(given) != 1:
            yield (
                f"got the keys {', '.join(given) or '(none)'}; must be one of uniform: [a, b], "
                "lognormal: {median, sigma}, choice: [..]"
            )
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            yield f"uniform: got {list(self.uniform)}; the first end must not exceed the second"

    @model_serializer
    def _write_distribution(self) -> dict[str, Any]:
        return {name: own for name, own in self if own is not None}

    def get_span(self) -> tuple[float, float]:
        """Return the smallest and the largest possible value."""
        if self.lognormal is not None:
            median = self.lognormal.median
            return (math.ulp(0.0), math.inf) if self.lognormal.sigma else (median, median)
        values = self.uniform or self.choice or ()
        return min(values), max(values)

    def compute_quantile(self, u: np.ndarray) -> np.ndarray:
        """Map uniform numbers [n] in [0, 1) to values by the quantile function."""
        if self.lognormal is not None:
            law = self.lognormal
            return law.median * np.exp(law.sigma * special.ndtri(np.maximum(u, LEAST)))
        if self.uniform is not None:
            return self.uniform[0] + (self.uniform[1] - self.uniform[0]) * u
        assert self.choice is not None
        return np.array(self.choice)[(u * len(self.choice)).astype(np.int64)]


Quantity = Annotated[
    Annotated[float, Tag("number")] | Annotated[QuantityLaw, Tag("law")],
    Discriminator(lambda value: "law" if isinstance(value, Mapping | QuantityLaw) else "number"),
]
"""A number or a distribution."""


class DrawnCompute(NumericCompute):
    """Devices with random speed, memory, battery, harvest or transmit power."""

    name: Literal["drawn"] = "drawn"
    flops_per_s: Quantity = 6e9
    """operations per second; a number or a distribution"""
    memory_mb: Quantity | None = None  # type: ignore[assignment]
    """memory for training in MiB, a number or a distribution; no bound if not given"""
    battery_j: Quantity | None = None  # type: ignore[assignment]
    """capacity of the battery in J, a number or a distribution; on mains if not given"""
    charge: Quantity = 1.0  # type: ignore[assignment]
    """share of the capacity that is charged at the start; a number or a distribution"""
    harvest_w: Quantity = 0.0  # type: ignore[assignment]
    """harvested power in W, which charges the battery all the time; a number or a distribution"""
    power_db: Quantity = 0.0  # type: ignore[assignment]
    """transmit power over that of the channel's settings, in dB; a number or a distribution"""

    @field_validator("flops_per_s", "memory_mb", "battery_j", "charge", "harvest_w", "power_db")
    @classmethod
    def _check_bounds(
        cls, value: float | QuantityLaw | None, info: ValidationInfo
    ) -> float | QuantityLaw | None:
        """Refuse a distribution that can give a value outside the bounds of its quantity."""
        if value is None:
            return value
        lowest, highest = value.get_span() if isinstance(value, QuantityLaw) else (value, value)
        name = str(info.field_name)
        bounds = {"gt": 0.0} if name == "flops_per_s" else get_bounds(name)
        least = bounds.get("gt", bounds.get("ge", -math.inf))
        most = bounds.get("le", math.inf)
        if lowest < least or (lowest == least and "gt" in bounds):
            what = "above" if "gt" in bounds else "at least"
            raise ValueError(f"can be {lowest:g}; all possible values must be {what} {least:g}")
        if highest > most:
            raise ValueError(f"can be {highest:g}; all possible values must be at most {most:g}")
        return value

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        names = ("flops_per_s", *QUANTITIES)
        u = generator.random((devices, len(names)))
        columns = {}
        for place, name in enumerate(names):
            value = getattr(self, name)
            if isinstance(value, QuantityLaw):
                columns[name] = value.compute_quantile(u[:, place])
            else:
                columns[name] = np.broadcast_to(np.float64(to_number(value)), devices)
        return columns
