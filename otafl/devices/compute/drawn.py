"""Devices whose speed, memory, battery and radio follow distributions.

The quantities are drawn once for each device and trial, independently of each other. Each is a
number or a distribution: {uniform: [a, b]}, {lognormal: {median: m, sigma: s}}, {normal: {mean: m,
std: s, least: a}}, which is conditioned on values of at least a, or {choice: [a, ..]}, with equal
probabilities.

Every device has a uniform number for each quantity, which the quantile function of the distribution
maps. More devices, or other distributions of other quantities, therefore do not change a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)
from scipy import special

from otafl.core.settings import Settings
from otafl.devices.compute.base import (
    QUANTITIES,
    Columns,
    Compute,
    NumericCompute,
    add_quantities,
    describe_quantity,
    expand_to_devices,
    get_bounds,
    to_number,
)

LEAST = 2.0**-54
"""Uniform number that replaces 0, which has no normal quantile."""


class UniformLaw(Settings):
    """Uniform distribution between two ends."""

    uniform: tuple[float, float]
    """lower and upper end"""

    def find_conflicts(self) -> Iterator[str]:
        if self.uniform[0] > self.uniform[1]:
            yield f"uniform: got {list(self.uniform)}; the first end must not exceed the second"

    def get_span(self) -> tuple[float, float]:
        """Return the smallest and the largest possible value."""
        return self.uniform

    def compute_quantile(self, u: np.ndarray) -> np.ndarray:
        """Map uniform numbers [n] in [0, 1) to values by the quantile function."""
        low, high = self.uniform
        return low + (high - low) * u


class _Lognormal(Settings):
    """Parameters of a log-normal distribution."""

    median: float = Field(gt=0, le=1e30)
    """median of the values"""
    sigma: float = Field(ge=0, le=20)  # a larger one exceeds the range of float64
    """standard deviation of the natural logarithm"""


class LognormalLaw(Settings):
    """Log-normal distribution, median exp(sigma z) with z ~ N(0, 1)."""

    lognormal: _Lognormal
    """median and sigma"""

    def get_span(self) -> tuple[float, float]:
        sigma = self.lognormal.sigma
        return (math.ulp(0.0), math.inf) if sigma else (self.lognormal.median,) * 2

    def compute_quantile(self, u: np.ndarray) -> np.ndarray:
        law = self.lognormal
        return np.asarray(law.median * np.exp(law.sigma * special.ndtri(np.maximum(u, LEAST))))


class _Normal(Settings):
    """Parameters of a truncated normal distribution."""

    mean: float
    """mean before the values below `least` are excluded"""
    std: float = Field(gt=0)
    """standard deviation before the values below `least` are excluded"""
    least: float
    """smallest value"""

    def find_conflicts(self) -> Iterator[str]:
        if self.least > self.mean:
            yield f"least: got {self.least:g}; must not exceed the mean ({self.mean:g})"


class NormalLaw(Settings):
    """Normal distribution, conditioned on values of at least `least`."""

    normal: _Normal
    """mean, std and least"""

    def get_span(self) -> tuple[float, float]:
        return self.normal.least, math.inf

    def compute_quantile(self, u: np.ndarray) -> np.ndarray:
        law, u = self.normal, np.maximum(u, LEAST)
        above = special.ndtr((law.mean - law.least) / law.std)  # P(X >= least), at least 1/2
        return np.maximum(law.least, law.mean - law.std * special.ndtri(u * above))


class ChoiceLaw(Settings):
    """Equal probabilities of several values."""

    choice: tuple[float, ...] = Field(min_length=1)
    """the values, with equal probabilities"""

    def get_span(self) -> tuple[float, float]:
        return min(self.choice), max(self.choice)

    def compute_quantile(self, u: np.ndarray) -> np.ndarray:
        values = np.array(self.choice)
        return values[(u * len(values)).astype(np.int64)]


Law = UniformLaw | LognormalLaw | NormalLaw | ChoiceLaw

_KEYS: dict[str, tuple[str, ...]] = {
    "uniform": (),
    "lognormal": tuple(_Lognormal.model_fields),
    "normal": tuple(_Normal.model_fields),
    "choice": (),
}
"""Name of a distribution -> keys of its mapping, if it has one."""


def _parse_law(value: Any) -> Any:
    """Refuse a mapping that is no distribution, with a clear message."""
    if not isinstance(value, Mapping):
        return value
    known = "uniform: [a, b], lognormal: {median, sigma}, normal: {mean, std, least}, choice: [..]"
    if len(value) != 1 or next(iter(value)) not in _KEYS:
        raise ValueError(f"got the keys {', '.join(map(str, value))}; must be one of {known}")
    name, inside = next(iter(value.items()))
    if _KEYS[name] and (not isinstance(inside, Mapping) or set(inside) != set(_KEYS[name])):
        raise ValueError(f"{name}: must be a mapping of {', '.join(_KEYS[name])}")
    return value


def _get_tag(value: Any) -> str:
    """Return the tag of a value: the only key of a distribution."""
    keys = type(value).model_fields if isinstance(value, Settings) else value
    return f"{next(iter(keys))} law" if isinstance(keys, Mapping) else "number"


Quantity = Annotated[
    Annotated[float, Tag("number")]
    | Annotated[UniformLaw, Tag("uniform law")]
    | Annotated[LognormalLaw, Tag("lognormal law")]
    | Annotated[NormalLaw, Tag("normal law")]
    | Annotated[ChoiceLaw, Tag("choice law")],
    Discriminator(_get_tag),
    BeforeValidator(_parse_law),
]
"""A number or a distribution."""


def _declare_quantity(name: str) -> tuple[Any, Any]:
    """Declare a quantity that is a number or a distribution."""
    info = NumericCompute.model_fields[name]
    bounded = info.default is not None
    text = f"{describe_quantity(name)}; a number or a distribution"
    return Quantity if bounded else Quantity | None, Field(info.default, description=text)


_SPEED = (Quantity, Field(6e9, description="operations per second; a number or a distribution"))


class DrawnCompute(add_quantities(Compute, _declare_quantity, flops_per_s=_SPEED)):  # type: ignore[misc]
    """Devices with random quantities."""

    name: Literal["drawn"] = "drawn"

    @field_validator("flops_per_s", *QUANTITIES)
    @classmethod
    def _check_bounds(cls, value: float | Law | None, info: ValidationInfo) -> float | Law | None:
        """Refuse a distribution that can give a value outside the bounds of its quantity."""
        if value is None:
            return value
        lowest, highest = _get_span(value)
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

    def has_frequency_scaling(self: Any) -> bool:
        return _get_span(self.frequency_min_share)[0] < 1

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        names = ("flops_per_s", *QUANTITIES)
        u = generator.random((devices, len(names)))
        columns = {}
        for place, name in enumerate(names):
            value = getattr(self, name)
            plain = value is None or isinstance(value, float)
            columns[name] = (
                expand_to_devices(to_number(value), devices)
                if plain
                else value.compute_quantile(u[:, place])
            )
        return columns


def _get_span(value: float | Law) -> tuple[float, float]:
    """Return the smallest and the largest possible value of a quantity."""
    return (value, value) if isinstance(value, float) else value.get_span()
