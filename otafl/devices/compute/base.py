"""Contract of a kind of devices: speed, energy of a clock cycle, memory, battery and radio.

At f cycles per second a device does `flops_per_cycle` f operations per second. A cycle costs kappa
f^2 joules, so computing draws kappa f^3 watts. The energy of CMOS logic is capacitance times
voltage squared, and the voltage grows with the frequency.

References
----------
Burd, Brodersen 1996, "Processor Design for Portable Systems".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any, ClassVar, Literal

import numpy as np

from otafl.core.settings import Decibels, Settings, declare_stackable, get_description
from otafl.devices.hardware import Hardware

Columns = dict[str, np.ndarray]
"""Quantity -> float64 [K], inf without a bound."""


class Compute(Settings):
    """Kind of devices. A kind is its settings."""

    idle_without: ClassVar = {"jitter_scale": "jitter"}

    is_in_order: ClassVar[bool] = False
    """Whether the hardware of a device depends only on its number, not on a random draw."""

    jitter: Literal["none", "exponential", "lognormal"] = "none"
    """distribution of a random factor of mean 1 on the seconds of local work, drawn for each device
    and round; exponential is the shifted one of Lee et al. 2018"""
    jitter_scale: float = declare_stackable(0.5, ge=0, le=20)
    """spread of the jitter: with exponential, the share of the mean that is random, at most 1; with
    lognormal, the standard deviation of the logarithm"""

    def find_conflicts(self) -> Iterator[str]:
        if self.jitter == "exponential" and self.jitter_scale > 1:
            yield (
                f"jitter_scale: got {self.jitter_scale:g}; must be at most 1 with jitter "
                "'exponential'"
            )

    @abstractmethod
    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        """Return every quantity of the devices, and their flops_per_s.

        Parameters
        ----------
        devices : int
            Number of devices K.
        generator : numpy.random.Generator
            Random generator of the trial. With the same one, the first devices of a larger
            population are those of a smaller one.

        Returns
        -------
        dict of str to ndarray, float64 [K]
            Quantities by name.

        Raises
        ------
        UserError
            If a file cannot be read.
        """

    @abstractmethod
    def has_frequency_scaling(self) -> bool:
        """Return whether a device can have several clock frequencies, as far as known."""

    def build_hardware(
        self, devices: int, generator: np.random.Generator, first: int = 0
    ) -> Hardware:
        """Build the hardware of a trial's devices.

        Parameters
        ----------
        devices : int
            Number of devices K.
        generator : numpy.random.Generator
            Random generator of the trial.
        first : int
            Number of the first device, if the hardware depends on numbers (`is_in_order`).

        Returns
        -------
        Hardware, arrays [K]
            Hardware of the devices.

        Raises
        ------
        UserError
            If a file cannot be read.
        """
        before = first if self.is_in_order else 0
        columns = {
            name: column[:1] if column.strides == (0,) else column[before:]  # one number in memory
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


class Quantities(Settings):
    """Quantities of a device beside its speed.

    The default kappa is the value that studies of wireless federated learning usually assume (Yang
    et al. 2021, "Energy Efficient Federated Learning Over Wireless Communication Networks"). Four
    operations per cycle are a convention of otafl. By default devices are on mains, with unlimited
    memory and one clock frequency. They then draw power only for computing and for what they
    radiate.
    """

    flops_per_cycle: float = declare_stackable(4.0, gt=0)
    """floating-point operations per clock cycle"""
    kappa: float = declare_stackable(1e-28, ge=0)
    """effective switched capacitance in J s^2 / cycle^3: a cycle at frequency f costs kappa f^2
    joules"""
    frequency_min_share: float = declare_stackable(1.0, gt=0, le=1)
    """lowest clock frequency over the highest, for devices.cpu_frequency"""
    memory_mb: float | None = declare_stackable(None, gt=0)
    """memory for training in MiB; no bound if not given"""
    battery_j: float | None = declare_stackable(None, gt=0)
    """capacity of the battery in J; on mains if not given"""
    charge: float = declare_stackable(1.0, ge=0, le=1)
    """share of the capacity that is charged at the start"""
    restart: float = declare_stackable(0.1, gt=0, le=1)
    """share of the capacity at which a device returns after its battery was empty"""
    harvest_w: float = declare_stackable(0.0, ge=0)
    """harvested power in W, which charges the battery all the time"""
    circuit_w: float = declare_stackable(0.0, ge=0)
    """power of the radio's circuits during a transmission in W, beside that of the amplifier"""
    receive_w: float = declare_stackable(0.0, ge=0)
    """power during the reception of the model in W"""
    idle_w: float = declare_stackable(0.0, ge=0)
    """power while an update waits for its slot, in W"""
    sleep_w: float = declare_stackable(0.0, ge=0)
    """power of a device without work in W"""
    efficiency: float = declare_stackable(1.0, gt=0, le=1)
    """radiated power over the power that the amplifier draws"""
    power_db: Decibels = declare_stackable(0.0)
    """transmit power over that of the channel's settings, in dB"""


class NumericCompute(Quantities, Compute):
    """Kind of devices with quantities that apply to all devices without others of their own."""

    def has_frequency_scaling(self) -> bool:
        return self.frequency_min_share < 1


QUANTITIES = tuple(Quantities.model_fields)


def build_common_columns(
    section: Quantities, devices: int, flops_per_s: np.ndarray | float
) -> Columns:
    """Return the quantities of a section, equal for all devices, and the given speeds, [K] each."""
    columns = {
        name: np.broadcast_to(np.float64(to_number(getattr(section, name))), devices)
        for name in QUANTITIES
    }
    return columns | {"flops_per_s": np.broadcast_to(np.asarray(flops_per_s, float), devices)}


def build_own_columns(rows: Sequence[Quantities]) -> Columns:
    """Return the quantities of several devices or classes [n], and their speeds."""
    return {
        name: np.array([to_number(getattr(row, name)) for row in rows])
        for name in ("flops_per_s", *QUANTITIES)
    }


def to_number(value: float | None) -> float:
    """Return a quantity as a number, inf for one without a bound."""
    return np.inf if value is None else value


def get_bounds(name: str) -> dict[str, Any]:
    """Return the bounds of a quantity, as `pydantic.Field` takes them: ge, gt, le."""
    bounds: dict[str, Any] = {}
    for one in Quantities.model_fields[name].metadata:
        bounds |= asdict(one)
    return bounds


def declare_changed(name: str, default: float) -> Any:
    """Declare a quantity with another default."""
    description = get_description(Quantities.model_fields[name])
    return declare_stackable(default, **get_bounds(name), description=description)
