"""Settings of the devices' computing: how fast each is, and what a clock cycle costs in joules.

A device that runs at f cycles a second does `flops_per_cycle` f operations a second, and a cycle
costs kappa f^2 joules (Burd and Brodersen 1996, "Processor Design for Portable Systems": the energy
of CMOS logic is capacitance times voltage squared, and voltage goes with frequency).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from otafl.config import Config, stackable

Late = Literal["drop", "next"]
"""What becomes of a device that is not ready when the uplink slot opens: its update is abandoned,
or it goes on and is admitted to the next slot at which it is ready."""


class ComputeConfig(Config):
    """What every kind of device may be told.

    The default kappa is the value commonly assumed for wireless federated learning (Yang et al.
    2021, "Energy Efficient Federated Learning Over Wireless Communication Networks"). Four
    operations a cycle are a convention of this simulator.
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


class ComputeClass(Config):
    """Devices of one kind. A plain number stands for its `flops_per_s`."""

    flops_per_s: float = Field(gt=0, description="operations a second of a device of this class")
    share: float = Field(
        1.0, gt=0, description="share of the devices, as a weight (shares need not sum to one)"
    )
    kappa: float | None = Field(
        None, ge=0, description="the class's own effective switched capacitance, J s^2 / cycle^3"
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


class PhoneComputeConfig(ComputeConfig):
    """Smartphones of unequal speed: clock frequencies uniform over 1 to 2 GHz, drawn once for each
    device and trial.

    2 GHz and kappa are the values of Yang et al. 2021; that frequencies spread evenly down to 1 GHz
    follows Tran et al. 2019 ("Federated Learning over Wireless Networks: Optimization Model Design
    and Analysis"). These are conventions of simulation studies, not measurements of phones.
    """

    name: Literal["phone"] = "phone"
    frequency_min_hz: float = stackable(1e9, gt=0, description="lowest clock frequency")
    frequency_max_hz: float = stackable(2e9, gt=0, description="highest clock frequency")

    @model_validator(mode="after")
    def _ordered(self) -> PhoneComputeConfig:
        if self.frequency_min_hz > self.frequency_max_hz:
            raise ValueError(
                f"frequency_min_hz must not exceed frequency_max_hz, got "
                f"{self.frequency_min_hz:g} and {self.frequency_max_hz:g}"
            )
        return self


AnyComputeConfig = (
    FixedComputeConfig | LognormalComputeConfig | ClassesComputeConfig | PhoneComputeConfig
)
"""What a `compute` section may hold, told apart by `name`."""
