"""Smartphones, with clock frequencies uniform from 1 to 2 GHz.

Clock frequencies are drawn once for each device and trial. 2 GHz and kappa are the values of Yang
et al.; the even spread down to 1 GHz follows Tran et al. These are conventions of simulation
studies, not measurements of phones.

With `battery: true` the phone runs on 4,000 mAh at 3.85 V (a usual size) and has the LTE radio that
Huang et al. measured. It draws 1.288 W while it transmits or receives, 52 mW more for each Mbit/s
that it receives (here 10), and 1.06 W while it stays connected. Idle it draws 20 mW, which is 594
mW for 43.2 ms in 1,280 ms. An amplifier of 35 % is a convention.

References
----------
Yang, Chen, Saad, Hong, Shikh-Bahaei 2021, "Energy Efficient Federated Learning Over Wireless
    Communication Networks".
Tran, Bao, Zomaya, Nguyen, Hong 2019, "Federated Learning over Wireless Networks: Optimization Model
    Design and Analysis".
Huang, Qian, Gerber, Mao, Sen, Spatscheck 2012, "A Close Examination of Performance and Power
    Characteristics of 4G LTE Networks".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from otafl.core.settings import declare_stackable
from otafl.devices.compute.base import Columns, NumericCompute, build_common_columns

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
    """Smartphones."""

    name: Literal["phone"] = "phone"
    frequency_min_hz: float = declare_stackable(1e9, gt=0)
    """highest clock frequency of the slowest phone"""
    frequency_max_hz: float = declare_stackable(2e9, gt=0)
    """highest clock frequency of the fastest phone"""
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

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if self.frequency_min_hz > self.frequency_max_hz:
            yield (
                f"frequency_min_hz: got {self.frequency_min_hz:g}; must not exceed "
                f"frequency_max_hz ({self.frequency_max_hz:g})"
            )

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        span = self.frequency_max_hz - self.frequency_min_hz
        frequency = self.frequency_min_hz + span * generator.random(devices)
        return build_common_columns(self, devices, self.flops_per_cycle * frequency)
