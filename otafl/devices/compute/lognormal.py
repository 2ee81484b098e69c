"""Devices with log-normal speeds.

A speed is median_flops_per_s exp(sigma z), z ~ N(0, 1), drawn once for each device and trial.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.core.settings import declare_stackable
from otafl.devices.compute.base import Columns, NumericCompute, build_common_columns


class LognormalCompute(NumericCompute):
    """Devices with random speeds."""

    name: Literal["lognormal"] = "lognormal"
    median_flops_per_s: float = declare_stackable(6e9, gt=0)
    """median operations per second"""
    sigma: float = declare_stackable(0.5, ge=0)
    """standard deviation of the natural logarithm of the speed"""

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        z = generator.standard_normal(devices)
        return build_common_columns(self, devices, self.median_flops_per_s * np.exp(self.sigma * z))
