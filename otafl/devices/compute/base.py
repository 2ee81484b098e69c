"""Define the contract of a kind of devices: how fast each computes, what a clock cycle costs in
joules, and what its memory, battery and radio are.

A device that runs at f cycles a second does `flops_per_cycle` f operations a second, and a cycle
costs kappa f^2 joules, so that computing draws kappa f^3 watts (Burd and Brodersen 1996, "Processor
Design for Portable Systems": the energy of CMOS logic is capacitance times voltage squared, and
voltage goes with frequency).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any, Literal

import numpy as np
from pydantic import Field, create_model

from otafl.core.settings import Decibels, Settings, declare_stackable
from otafl.devices.hardware import Hardware

Columns = dict[str, np.ndarray]
"""Quantity -> float64 [K], inf for what has no bound."""


class Compute(Settings):
    """Say what the devices are made of. A kind of devices is its settings."""

    jitter: Literal["none", "exponential", "lognormal"] = "none"
    """law of a random factor of mean 1 on the seconds of local work, anew for each device and
    round; exponential is shifted (Lee et al. 2018)"""
    jitter_scale: float = declare_stackable(0.5, ge=0, le=20)
    """spread of the jitter: the share of the mean that is exponential, at most 1, or the standard
    deviation of the lognormal's logarithm"""

    def find_conflicts(self) -> Iterator[str]:
        if self.jitter == "exponential" and self.jitter_scale > 1:
            yield (
                f"jitter_scale must be at most 1 with jitter 'exponential', whose shift is the "
                f"rest of the mean; got {self.jitter_scale:g}"
            )

    @abstractmethod
    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        """Return every quantity of so many devices, and their flops_per_s.

        The first devices of a larger population are those of a smaller one under the same
        generator.

        Raises
        ------
        UserError
            For a file that cannot be read.
        """

    @abstractmethod
    def has_frequency_scaling(self) -> bool:
        """Return whether any device may have more than one clock frequency, as far as settings
        tell."""

    @property
    def is_in_order(self) -> bool:
        """Whether a device's number, and no draw, says what it is made of."""
        return False

    def build_hardware(
        self, devices: int, generator: np.random.Generator, first: int = 0
    ) -> Hardware:
        """Return the hardware [K] of a trial's devices. Raises as `list_columns`.

        first: number of the first of these devices, where kinds go by number (`is_in_order`).
        """
        before = first if self.is_in_order else 0
        columns = {
            name: _to_single(column[before:])
            for name, column in self.list_columns(before + devices, generator).items()
        }
        frequency = columns["flops_per_s"] / columns["flops_per_cycle"]
        mains = np.isinf(columns["battery_j"])
        capacity = np.where(mains, 0.0, columns["battery_j"])
        made = columns | {
            "frequency_hz": frequency,
            "frequency_min_hz": frequency * columns["frequency_min_share"],
            "charge_j": np.where(mains, np.inf, capacity * columns["charge"]),
            "restart_j": capacity * columns["restart"],
        }
        return Hardware(*(np.broadcast_to(made[part.name], devices) for part in fields(Hardware)))


class NumericCompute(Compute):
    """Say what devices are made of by numbers, the same for all that have none of their own.

    The default kappa is the value commonly assumed for wireless federated learning (Yang et al.
    2021, "Energy Efficient Federated Learning Over Wireless Communication Networks"). Four
    operations a cycle are a convention of this simulator. By default devices are on mains, have all
    the memory that they need and one clock frequency, and draw power for computing and for what
    they radiate alone.
    """

    flops_per_cycle: float = declare_stackable(4.0, gt=0)
    """floating-point operations of one clock cycle"""
    kappa: float = declare_stackable(1e-28, ge=0)
    """effective switched capacitance in J s^2 / cycle^3: a cycle at f cycles a second costs kappa
    f^2 joules"""
    frequency_min_share: float = declare_stackable(1.0, gt=0, le=1)
    """lowest clock frequency that a device can be set to (devices.cpu_frequency), as a share of its
    highest"""
    memory_mb: float | None = declare_stackable(None, gt=0)
    """memory for training in MiB; no bound if not given"""
    battery_j: float | None = declare_stackable(None, gt=0)
    """capacity of the battery in J; on mains if not given"""
    charge: float = declare_stackable(1.0, ge=0, le=1)
    """share of the battery that is full at the start"""
    restart: float = declare_stackable(0.1, gt=0, le=1)
    """share of its charge at which a device whose battery was empty comes back"""
    harvest_w: float = declare_stackable(0.0, ge=0)
    """power that charges the battery all the time, in W"""
    circuit_w: float = declare_stackable(0.0, ge=0)
    """power that the radio's circuits draw while a device transmits, in W, beside what its
    amplifier draws"""
    receive_w: float = declare_stackable(0.0, ge=0)
    """power drawn while the model is received, in W"""
    idle_w: float = declare_stackable(0.0, ge=0)
    """power drawn while an update waits for its slot, in W"""
    sleep_w: float = declare_stackable(0.0, ge=0)
    """power drawn by a device that has nothing to do, in W"""
    efficiency: float = declare_stackable(1.0, gt=0, le=1)
    """share of what the power amplifier draws that is radiated"""
    power_db: Decibels = declare_stackable(0.0)
    """transmit power over that of the channel's settings, in dB"""

    def has_frequency_scaling(self) -> bool:
        return self.frequency_min_share < 1


QUANTITIES = tuple(name for name in NumericCompute.model_fields if name not in Compute.model_fields)
"""What a device has beside its speed."""


def build_common_columns(
    section: NumericCompute, devices: int, flops_per_s: np.ndarray | float
) -> Columns:
    """Return the section's quantities, the same for all of so many devices, and their speeds, [K]
    or one for all."""
    columns = {
        name: expand_to_devices(to_number(getattr(section, name)), devices) for name in QUANTITIES
    }
    return columns | {"flops_per_s": np.broadcast_to(np.asarray(flops_per_s, float), devices)}


def expand_to_devices(value: float, devices: int) -> np.ndarray:
    """Return a quantity that all devices have alike, [K]: one number in memory, whatever K."""
    return np.broadcast_to(np.float64(value), devices)


def _to_single(values: np.ndarray) -> np.ndarray:
    """Return a quantity [K] that is equal for all devices, from `expand_to_devices`, as [1]."""
    return values[:1] if values.strides == (0,) else values


def to_number(value: float | None) -> float:
    """Return a quantity, inf for one that has no bound."""
    return np.inf if value is None else value


def list_owned(rows: Sequence[Any], section: NumericCompute, names: Sequence[str]) -> Columns:
    """Return those of the quantities that any of several devices or classes has of its own, and
    that of the section for those that have none."""
    columns = {}
    for name in names:
        own = [getattr(row, name) for row in rows]
        if any(value is not None for value in own):
            rest = to_number(getattr(section, name, None))
            columns[name] = np.array([rest if value is None else value for value in own])
    return columns


def get_bounds(name: str) -> dict[str, Any]:
    """Return the bounds of a quantity, as `pydantic.Field` takes them: ge, gt, le."""
    bounds: dict[str, Any] = {}
    for one in NumericCompute.model_fields[name].metadata:
        bounds |= asdict(one)
    return bounds


def declare_changed(name: str, default: float) -> Any:
    """Declare a quantity with another default."""
    what = NumericCompute.model_fields[name].description
    return declare_stackable(default, **get_bounds(name), description=what)


def add_quantities(
    base: type[Settings], declare: Callable[[str], tuple[Any, Any]], **before: tuple[Any, Any]
) -> Any:
    """Return a class of settings with a field for each quantity. declare: its name -> type and
    field; before: fields that come before them."""
    quantities: dict[str, Any] = before | {name: declare(name) for name in QUANTITIES}
    return create_model(f"{base.__name__}WithQuantities", __base__=base, **quantities)


def _is_owned(name: str) -> tuple[Any, Any]:
    what = f"{NumericCompute.model_fields[name].description}; the section's if not given"
    return float | None, Field(None, **get_bounds(name), description=what)


OwnQuantities = add_quantities(Settings, _is_owned)
"""What a device or class has of its own, in place of the section's."""
