"""Settings of the devices' hardware: how fast each computes, what a clock cycle costs in joules,
and what its memory, battery and radio are.

A device that runs at f cycles a second does `flops_per_cycle` f operations a second, and a cycle
costs kappa f^2 joules, so that computing draws kappa f^3 watts (Burd and Brodersen 1996, "Processor
Design for Portable Systems": the energy of CMOS logic is capacitance times voltage squared, and
voltage goes with frequency).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from otafl.core.settings import Settings, stackable


class JitteredConfig(Settings):
    """Random slowness of local work, see `otafl.devices.jitter`."""

    jitter: Literal["none", "exponential", "lognormal"] = Field(
        "none",
        description="law of a random factor of mean 1 on the seconds of local work, anew for each "
        "device and round; exponential is shifted (Lee et al. 2018)",
    )
    jitter_scale: float = stackable(
        0.5,
        ge=0,
        description="spread of the jitter: the share of the mean that is exponential, at most 1, "
        "or the standard deviation of the lognormal's logarithm",
    )

    @model_validator(mode="after")
    def _shifted(self) -> JitteredConfig:
        if self.jitter == "exponential" and self.jitter_scale > 1:
            raise ValueError(
                f"jitter_scale must be at most 1 with jitter 'exponential', whose shift is the "
                f"rest of the mean; got {self.jitter_scale:g}"
            )
        return self


class ComputeConfig(JitteredConfig):
    """What every kind of device may be told.

    The default kappa is the value commonly assumed for wireless federated learning (Yang et al.
    2021, "Energy Efficient Federated Learning Over Wireless Communication Networks"). Four
    operations a cycle are a convention of this simulator. By default devices are on mains, have all
    the memory that they need and one clock frequency, and draw power for computing and for what
    they radiate alone.
    """

    flops_per_cycle: float = stackable(
        4.0, gt=0, description="floating-point operations of one clock cycle"
    )
    kappa: float = stackable(
        1e-28,
        ge=0,
        description="effective switched capacitance in J s^2 / cycle^3: a cycle at f cycles a "
        "second costs kappa f^2 joules",
    )
    frequency_min_share: float = stackable(
        1.0,
        gt=0,
        le=1,
        description="lowest clock frequency that a device can be set to (devices.frequency), as a "
        "share of its highest",
    )
    memory_mb: float | None = stackable(
        None, gt=0, description="memory for training in MiB; no bound if not given"
    )
    battery_j: float | None = stackable(
        None, gt=0, description="capacity of the battery in J; on mains if not given"
    )
    charge: float = stackable(
        1.0, ge=0, le=1, description="share of the battery that is full at the start"
    )
    restart: float = stackable(
        0.1,
        gt=0,
        le=1,
        description="share of its charge at which a device whose battery was empty comes back",
    )
    harvest_w: float = stackable(
        0.0, ge=0, description="power that charges the battery all the time, in W"
    )
    circuit_w: float = stackable(
        0.0,
        ge=0,
        description="power that the radio's circuits draw while a device transmits, in W, beside "
        "what its amplifier draws",
    )
    receive_w: float = stackable(
        0.0, ge=0, description="power drawn while the model is received, in W"
    )
    idle_w: float = stackable(
        0.0, ge=0, description="power drawn while an update waits for its slot, in W"
    )
    sleep_w: float = stackable(
        0.0, ge=0, description="power drawn by a device that has nothing to do, in W"
    )
    efficiency: float = stackable(
        1.0,
        gt=0,
        le=1,
        description="share of what the power amplifier draws that is radiated",
    )
    power_db: float = stackable(
        0.0, description="transmit power over that of the channel's settings, in dB"
    )

    def scales(self) -> bool:
        """Whether any device may have more than one clock frequency, as far as settings tell."""
        return self.frequency_min_share < 1


QUANTITIES = tuple(
    name for name in ComputeConfig.model_fields if name not in JitteredConfig.model_fields
)
"""What a device has beside its speed."""


def bounds_of(name: str) -> dict[str, Any]:
    """The bounds of a quantity, as `pydantic.Field` takes them: ge, gt, le."""
    metadata = ComputeConfig.model_fields[name].metadata
    return {
        key: getattr(one, key)
        for one in metadata
        for key in ("ge", "gt", "le")
        if hasattr(one, key)
    }


def _own(name: str) -> Any:
    """A quantity of one device or class."""
    what = ComputeConfig.model_fields[name].description
    return Field(None, **bounds_of(name), description=f"{what}; the section's if not given")


class OwnQuantities(Settings):
    """What a device or class has of its own, in place of the section's."""

    flops_per_cycle: float | None = _own("flops_per_cycle")
    kappa: float | None = _own("kappa")
    frequency_min_share: float | None = _own("frequency_min_share")
    memory_mb: float | None = _own("memory_mb")
    battery_j: float | None = _own("battery_j")
    charge: float | None = _own("charge")
    restart: float | None = _own("restart")
    harvest_w: float | None = _own("harvest_w")
    circuit_w: float | None = _own("circuit_w")
    receive_w: float | None = _own("receive_w")
    idle_w: float | None = _own("idle_w")
    sleep_w: float | None = _own("sleep_w")
    efficiency: float | None = _own("efficiency")
    power_db: float | None = _own("power_db")


class FixedComputeConfig(ComputeConfig):
    """All devices equally fast."""

    name: Literal["fixed"] = "fixed"
    flops_per_s: float = stackable(
        6e9, gt=0, description="operations a second; 6e9 is 4 a cycle at 1.5 GHz"
    )


class LognormalComputeConfig(ComputeConfig):
    """Speeds drawn once for each device and trial: median_flops_per_s exp(sigma z), z ~ N(0, 1)."""

    name: Literal["lognormal"] = "lognormal"
    median_flops_per_s: float = stackable(6e9, gt=0, description="median operations a second")
    sigma: float = stackable(
        0.5, ge=0, description="standard deviation of the speed's natural logarithm"
    )


class ComputeClass(OwnQuantities):
    """Devices of one kind. A plain number stands for its `flops_per_s`."""

    flops_per_s: float = Field(gt=0, description="operations a second of a device of this class")
    share: float = Field(
        1.0, gt=0, description="share of the devices, as a weight (shares need not sum to one)"
    )


def _plain_speed(value: Any) -> Any:
    return {"flops_per_s": value} if isinstance(value, int | float | str) else value


_Class = Annotated[
    ComputeClass, BeforeValidator(_plain_speed, json_schema_input_type=ComputeClass | float)
]


class ClassesComputeConfig(ComputeConfig):
    """Devices of several classes; `classes: [2e9, 4e9, 8e9]` with as many numbers as devices says
    each device's speed."""

    name: Literal["classes"] = "classes"
    classes: tuple[_Class, ...] = Field(
        min_length=1, description="the classes: a mapping each, or the speed alone"
    )
    assignment: Literal["in_order", "random"] = Field(
        "in_order",
        description="in_order deals devices out so that each class keeps to its share as closely "
        "as can be (equal shares: in turn); random draws each device's class with its share",
    )

    def scales(self) -> bool:
        own = (one.frequency_min_share for one in self.classes)
        return any((self.frequency_min_share if one is None else one) < 1 for one in own)
