"""Devices of equal speed."""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.core.settings import declare_stackable
from otafl.devices.compute.base import Columns, NumericCompute, build_common_columns


class Fixed(NumericCompute):
    """Equal devices."""

    name: Literal["fixed"] = "fixed"
    flops_per_s: float = declare_stackable(6e9, gt=0)
    """operations per second; 6e9 is 4 per cycle at 1.5 GHz"""

    def list_columns(self, devices: int, generator: np.random.Generator) -> Columns:
        return build_common_columns(self, devices, self.flops_per_s)
