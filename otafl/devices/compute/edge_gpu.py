"""Embedded GPU (Jetson TX2) between its two power modes, on mains.

The NVIDIA Jetson TX2 has 256 Pascal cores and 8 GB, and the power modes Max-P (1.12 GHz, 15 W) and
Max-Q (0.85 GHz, 7.5 W).

- kappa is P / f^3 = 15 W / 1.12e9^3. At 0.85 GHz this gives 6.6 W against the 7.5 W of Max-Q, so
  the cubic law holds within an eighth over this range. Clocks do not go lower. The powers of the
  modes are those of the whole module.
- 256 cores do at most 512 operations per cycle. That training reaches half of this is a convention,
  and small models reach less.
- The radio is an 802.11n card with one antenna, with 1.28 W while it transmits, including the
  radiated power, and 0.94 W while it receives.
- 2 W while the device waits or has no work are a convention.

References
----------
NVIDIA, "Jetson TX2 power modes".
Halperin, Greenstein, Sheth, Wetherall 2010, "Demystifying 802.11n Power Consumption".
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


class EdgeGpu(NumericCompute):
    """Embedded GPUs."""

    name: Literal["edge_gpu"] = "edge_gpu"
    frequency_hz: float = declare_stackable(1.12e9, gt=0)
    """highest clock frequency"""
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
