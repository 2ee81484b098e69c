"""Kinds of devices: equal ones, random speeds, classes, rows of a file, and presets."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from otafl.core import csv_table
from otafl.core.errors import UserError
from otafl.core.settings import declare_stackable
from otafl.devices.compute.base import (
    QUANTITIES,
    Columns,
    Compute,
    NumericCompute,
    Quantities,
    build_common_columns,
    build_own_columns,
    declare_changed,
    to_number,
)


class Fixed(NumericCompute):
    """Devices of equal speed."""

    name: Literal["fixed"] = "fixed"
    flops_per_s: float = declare_stackable(6e9, gt=0)
    """operations per second; 6e9 is 4 per cycle at 1.5 GHz"""

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        return build_common_columns(self, devices, self.flops_per_s)


class LognormalCompute(NumericCompute):
    """Devices with log-normal speeds.

    A speed is median_flops_per_s exp(sigma z), z ~ N(0, 1), drawn once for each device and trial.
    """

    name: Literal["lognormal"] = "lognormal"
    median_flops_per_s: float = declare_stackable(6e9, gt=0)
    """median operations per second"""
    sigma: float = declare_stackable(0.5, ge=0)
    """standard deviation of the natural logarithm of the speed"""

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        z = generator.standard_normal(devices)
        return build_common_columns(self, devices, self.median_flops_per_s * np.exp(self.sigma * z))


class ComputeClass(Quantities):
    """Devices of one kind. A plain number stands for its `flops_per_s`."""

    flops_per_s: float = Field(gt=0)
    """operations per second of a device of this class"""
    share: float = Field(1.0, gt=0)
    """share of the devices, as a weight; shares need not sum to one"""


def _parse_speed(value: Any) -> Any:
    """Return a plain number as a class with this speed."""
    return {"flops_per_s": value} if isinstance(value, int | float | str) else value


_Class = Annotated[
    ComputeClass, BeforeValidator(_parse_speed, json_schema_input_type=ComputeClass | float)
]


class Classes(Compute):
    """Several kinds of devices, assigned by their shares.

    `classes: [2e9, 4e9, 8e9]` with as many numbers as devices gives each device its speed. Each
    class gets its share of the devices as exactly as possible, in turn if shares are equal.
    """

    example: ClassVar = {"devices.compute.classes": [{"flops_per_s": 1e9}, {"flops_per_s": 1e8}]}
    is_in_order: ClassVar[bool] = True

    name: Literal["classes"] = "classes"
    classes: tuple[_Class, ...] = Field(min_length=1)
    """the classes, each a mapping with its quantities, or only its speed"""

    def has_frequency_scaling(self) -> bool:
        return min(one.frequency_min_share for one in self.classes) < 1

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        shares = np.array([one.share for one in self.classes])
        shares = shares / shares.sum()
        of = np.empty(devices, dtype=np.int64)
        num_assigned = np.zeros(len(shares))
        for device in range(devices):
            of[device] = np.argmax((device + 1) * shares - num_assigned)
            num_assigned[of[device]] += 1
        return {name: values[of] for name, values in build_own_columns(self.classes).items()}


class CsvDevice(Quantities):
    """Device in a row of a file."""

    flops_per_s: float | None = Field(None, gt=0)
    """operations per second"""
    frequency_hz: float | None = Field(None, gt=0)
    """highest clock frequency"""


class Csv(NumericCompute):
    """Devices from a CSV file, with a row for each.

    Devices take the rows in order, and repeat them if there are fewer rows than devices. Columns
    have the names of the section's fields. `flops_per_s` or `frequency_hz` is required. A device
    has the section's value of a column that is missing or empty.
    """

    example: ClassVar = {"devices.compute.file": "devices.csv"}
    is_in_order: ClassVar[bool] = True

    name: Literal["csv"] = "csv"
    file: str = Field(min_length=1)
    """CSV file with a line for each device"""

    def has_frequency_scaling(self) -> bool:
        return True  # unknown before the file is read

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        path = Path(self.file)
        rows = _read_rows(self, path.stat().st_mtime_ns if path.exists() else 0)
        columns = build_own_columns(rows)
        by_frequency = columns["flops_per_cycle"] * [to_number(row.frequency_hz) for row in rows]
        columns["flops_per_s"] = np.minimum(columns["flops_per_s"], by_frequency)
        return {name: np.resize(values, devices) for name, values in columns.items()}


@functools.lru_cache(maxsize=4)
def _read_rows(section: Csv, changed_ns: int) -> tuple[CsvDevice, ...]:
    """Read the devices of a section's file, which was last changed at `changed_ns`.

    A network of servers asks for the devices of each server. Raises UserError if a row is not a
    device.
    """
    key, known = "devices.compute.file", tuple(CsvDevice.model_fields)
    common = {name: getattr(section, name) for name in QUANTITIES}
    devices = []
    for row in csv_table.read(section.file, key, known):
        where = f"{key}: '{section.file}', line {row.line}"
        try:
            device = CsvDevice.model_validate(common | row.values)
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


BATTERY = {
    "battery_j": 55440.0,
    "circuit_w": 1.288,
    "receive_w": 1.81,
    "idle_w": 1.06,
    "sleep_w": 0.02,
    "efficiency": 0.35,
}
"""Quantities of a phone with `battery: true`."""


class Phone(NumericCompute):
    """Smartphones, with clock frequencies uniform from 1 to 2 GHz.

    Clock frequencies are drawn once for each device and trial. 2 GHz and kappa are the values of
    Yang et al.; the even spread down to 1 GHz follows Tran et al. These are conventions of
    simulation studies, not measurements of phones.

    With `battery: true` the phone runs on 4,000 mAh at 3.85 V (a usual size) and has the LTE radio
    that Huang et al. measured. It draws 1.288 W while it transmits or receives, 52 mW more for each
    Mbit/s that it receives (here 10), and 1.06 W while it stays connected. Idle it draws 20 mW,
    which is 594 mW for 43.2 ms in 1,280 ms. An amplifier of 35 % is a convention.

    References
    ----------
    Yang, Chen, Saad, Hong, Shikh-Bahaei 2021, "Energy Efficient Federated Learning Over Wireless
        Communication Networks".
    Tran, Bao, Zomaya, Nguyen, Hong 2019, "Federated Learning over Wireless Networks: Optimization
        Model Design and Analysis".
    Huang, Qian, Gerber, Mao, Sen, Spatscheck 2012, "A Close Examination of Performance and Power
        Characteristics of 4G LTE Networks".
    """

    name: Literal["phone"] = "phone"
    battery: bool = False
    """whether the phone is on a battery, with the power draw of an LTE radio: it gives battery_j,
    circuit_w, receive_w, idle_w, sleep_w and efficiency the values of a phone if they are not
    given"""

    @model_validator(mode="before")
    @classmethod
    def _fill_battery(cls, values: Any) -> Any:
        """Insert the quantities of a phone's battery and radio."""
        if isinstance(values, Mapping) and values.get("battery") is True:
            return BATTERY | dict(values)
        return values

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        frequency = 1e9 + 1e9 * generator.random(devices)
        return build_common_columns(self, devices, self.flops_per_cycle * frequency)


class Mcu(NumericCompute):
    """Microcontroller of a wireless sensor (nRF52840, Cortex-M4F) on a coin cell.

    The Nordic nRF52840 is an Arm Cortex-M4F at 64 MHz with 256 kB of RAM and a 2.4 GHz radio. It
    has one clock frequency. The numbers are at 3 V with the DC/DC converter:

    - The CPU draws 3.3 mA at 64 MHz, or 9.9 mW, and kappa is P / f^3 = 9.9e-3 / 64e6^3.
    - At 1 Mbit/s the radio receives at 6.26 mA. It transmits at 6.40 mA with 0 dBm and at 16.40 mA
      with 8 dBm. The straight line through these is 13.5 mW of circuits and an amplifier of 18 %.
    - Asleep, with all RAM retained and the clock running, the device draws 3.16 uA.
    - The M4 adds or multiplies in one cycle and loads in about one (FPU instruction timing): 2
      operations in 4 cycles.
    - A CR2032 cell has 225 mAh at 3 V (IEC typical). That a device returns at a tenth of its charge
      is a convention.

    Set channel.tx_power_dbm to that of the radio, 0 to 8. docs/devices.md states for each number
    whether it is measured, from a data sheet or a convention.

    References
    ----------
    Nordic Semiconductor, "nRF52840 Product Specification".
    Arm, "Cortex-M4 Technical Reference Manual".
    """

    name: Literal["mcu"] = "mcu"
    frequency_hz: ClassVar[float] = 64e6
    """Clock frequency."""

    flops_per_cycle: float = declare_changed("flops_per_cycle", 0.5)
    kappa: float = declare_changed("kappa", 3.78e-26)
    memory_mb: float | None = declare_changed("memory_mb", 0.25)
    battery_j: float | None = declare_changed("battery_j", 2430.0)
    circuit_w: float = declare_changed("circuit_w", 13.5e-3)
    receive_w: float = declare_changed("receive_w", 18.8e-3)
    idle_w: float = declare_changed("idle_w", 9.5e-6)
    sleep_w: float = declare_changed("sleep_w", 9.5e-6)
    efficiency: float = declare_changed("efficiency", 0.18)

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        return build_common_columns(self, devices, self.flops_per_cycle * self.frequency_hz)


class EdgeGpu(NumericCompute):
    """Embedded GPU (Jetson TX2) between its two power modes, on mains.

    The NVIDIA Jetson TX2 has 256 Pascal cores and 8 GB, and the power modes Max-P (1.12 GHz, 15 W)
    and Max-Q (0.85 GHz, 7.5 W).

    - kappa is P / f^3 = 15 W / 1.12e9^3. At 0.85 GHz this gives 6.6 W against the 7.5 W of Max-Q,
      so the cubic law holds within an eighth over this range. Clocks do not go lower. The powers of
      the modes are those of the whole module.
    - 256 cores do at most 512 operations per cycle. That training reaches half of this is a
      convention, and small models reach less.
    - The radio is an 802.11n card with one antenna, with 1.28 W while it transmits, including the
      radiated power, and 0.94 W while it receives.
    - 2 W while the device waits or has no work are a convention.

    References
    ----------
    NVIDIA, "Jetson TX2 power modes".
    Halperin, Greenstein, Sheth, Wetherall 2010, "Demystifying 802.11n Power Consumption".
    """

    name: Literal["edge_gpu"] = "edge_gpu"
    frequency_hz: ClassVar[float] = 1.12e9
    """Highest clock frequency."""

    flops_per_cycle: float = declare_changed("flops_per_cycle", 256.0)
    kappa: float = declare_changed("kappa", 1.07e-26)
    frequency_min_share: float = declare_changed("frequency_min_share", 0.76)
    memory_mb: float | None = declare_changed("memory_mb", 8192.0)
    circuit_w: float = declare_changed("circuit_w", 1.28)
    receive_w: float = declare_changed("receive_w", 0.94)
    idle_w: float = declare_changed("idle_w", 2.0)
    sleep_w: float = declare_changed("sleep_w", 2.0)

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        return build_common_columns(self, devices, self.flops_per_cycle * self.frequency_hz)
