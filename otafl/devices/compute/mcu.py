"""Microcontroller of a wireless sensor (nRF52840, Cortex-M4F) on a coin cell.

The Nordic nRF52840 is an Arm Cortex-M4F at 64 MHz with 256 kB of RAM and a 2.4 GHz radio. It has
one clock frequency. The numbers are at 3 V with the DC/DC converter:

- The CPU draws 3.3 mA at 64 MHz, or 9.9 mW, and kappa is P / f^3 = 9.9e-3 / 64e6^3.
- At 1 Mbit/s the radio receives at 6.26 mA. It transmits at 6.40 mA with 0 dBm and at 16.40 mA with
  8 dBm. The straight line through these is 13.5 mW of circuits and an amplifier of 18 %.
- Asleep, with all RAM retained and the clock running, the device draws 3.16 uA.
- The M4 adds or multiplies in one cycle and loads in about one (FPU instruction timing): 2
  operations in 4 cycles.
- A CR2032 cell has 225 mAh at 3 V (IEC typical). That a device returns at a tenth of its charge is
  a convention.

Set channel.tx_power_dbm to that of the radio, 0 to 8. docs/devices.md states for each number
whether it is measured, from a data sheet or a convention.

References
----------
Nordic Semiconductor, "nRF52840 Product Specification".
Arm, "Cortex-M4 Technical Reference Manual".
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.core.settings import declare_stackable
from otafl.devices.compute.base import (
    Columns,
    NumericCompute,
    build_common_columns,
    declare_changed,
)


class Mcu(NumericCompute):
    """Microcontrollers."""

    name: Literal["mcu"] = "mcu"
    frequency_hz: float = declare_stackable(64e6, gt=0)
    """clock frequency"""
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
