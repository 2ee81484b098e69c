"""Settings of devices that are drawn from laws, or read from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from otafl.core.settings import Settings
from otafl.devices.config_hardware import (
    QUANTITIES,
    ComputeConfig,
    JitteredConfig,
    OwnQuantities,
    bounds_of,
)


class UniformLaw(Settings):
    """Uniform between two ends."""

    uniform: tuple[float, float]

    @model_validator(mode="after")
    def _ordered(self) -> UniformLaw:
        if self.uniform[0] > self.uniform[1]:
            raise ValueError(
                f"uniform: the first end must not exceed the second, got {self.uniform}"
            )
        return self

    def span(self) -> tuple[float, float]:
        """The lowest and the highest that can be drawn."""
        return self.uniform


class _Lognormal(Settings):
    median: float = Field(gt=0)
    sigma: float = Field(ge=0)


class LognormalLaw(Settings):
    """median exp(sigma z), z ~ N(0, 1)."""

    lognormal: _Lognormal

    def span(self) -> tuple[float, float]:
        sigma = self.lognormal.sigma
        return (math.ulp(0.0), math.inf) if sigma else (self.lognormal.median,) * 2


class _Normal(Settings):
    mean: float
    std: float = Field(gt=0)
    least: float

    @model_validator(mode="after")
    def _likely(self) -> _Normal:
        if self.least > self.mean:
            raise ValueError(f"least ({self.least:g}) must not exceed the mean ({self.mean:g})")
        return self


class NormalLaw(Settings):
    """Normal, drawn again while below the least."""

    normal: _Normal

    def span(self) -> tuple[float, float]:
        return self.normal.least, math.inf


class ChoiceLaw(Settings):
    """One of several values, all alike."""

    choice: tuple[float, ...] = Field(min_length=1)

    def span(self) -> tuple[float, float]:
        return min(self.choice), max(self.choice)


_LAWS: dict[str, tuple[str, ...]] = {
    "uniform": (),
    "lognormal": ("median", "sigma"),
    "normal": ("mean", "std", "least"),
    "choice": (),
}
"""Law -> the keys that it takes, if it is a mapping."""


def _law(value: Any) -> Any:
    """A clear sentence for a mapping that is no law."""
    if not isinstance(value, Mapping):
        return value
    known = "uniform: [a, b], lognormal: {median, sigma}, normal: {mean, std, least}, choice: [..]"
    if len(value) != 1 or next(iter(value)) not in _LAWS:
        raise ValueError(f"got the keys {', '.join(map(str, value))}; a law is one of {known}")
    name, inside = next(iter(value.items()))
    if _LAWS[name] and (not isinstance(inside, Mapping) or set(inside) != set(_LAWS[name])):
        raise ValueError(f"{name} takes a mapping of {', '.join(_LAWS[name])}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{next(iter(value))} law"
    return type(value).__name__ if isinstance(value, Settings) else "number"


Law = UniformLaw | LognormalLaw | NormalLaw | ChoiceLaw

Quantity = Annotated[
    Annotated[float, Tag("number")]
    | Annotated[UniformLaw, Tag("uniform law")]
    | Annotated[LognormalLaw, Tag("lognormal law")]
    | Annotated[NormalLaw, Tag("normal law")]
    | Annotated[ChoiceLaw, Tag("choice law")],
    Discriminator(_kind),
    BeforeValidator(_law),
]


def _quantity(name: str) -> Any:
    info = ComputeConfig.model_fields[name]
    return Field(info.default, description=f"{info.description}; a number or a law")


class DrawnComputeConfig(JitteredConfig):
    """Devices whose speed and parts are drawn once for each device and trial, independently of each
    other. Each is a number or a law: {uniform: [a, b]}, {lognormal: {median: m, sigma: s}},
    {normal: {mean: m, std: s, least: a}} (given that it is not below the least), {choice: [a, ..]}
    (all alike)."""

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

    def scales(self) -> bool:
        """Whether any device may have more than one clock frequency."""
        value = self.frequency_min_share
        return (value if isinstance(value, float) else value.span()[0]) < 1

    @field_validator("flops_per_s", *QUANTITIES)
    @classmethod
    def _within(cls, value: float | Law | None, info: ValidationInfo) -> float | Law | None:
        """Nothing can be drawn that could not be given."""
        if value is None:
            return value
        lowest, highest = (value, value) if isinstance(value, float) else value.span()
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


class CsvDevice(OwnQuantities):
    """A row of a file of devices."""

    flops_per_s: float | None = Field(None, gt=0, description="operations a second")
    frequency_hz: float | None = Field(None, gt=0, description="highest clock frequency")


class CsvComputeConfig(ComputeConfig):
    """Devices from a CSV file, a row each, in order and round again where there are fewer rows than
    devices. Columns are named as the section's fields; `flops_per_s` or `frequency_hz` there must
    be, and what is not there, or empty, is the section's."""

    name: Literal["csv"] = "csv"
    file: str = Field(
        min_length=1, description="CSV file; relative paths count from the working directory"
    )

    def scales(self) -> bool:
        return True  # as far as anybody knows before the file is read
