"""Give the largest models to the devices that compute fastest."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.levels.base import Levels, Shares, by_place


class ComputeLevels(Levels):
    class Settings(Levels.Settings):
        example: ClassVar = {**Levels.Settings.example, "devices.compute.name": "lognormal"}

        name: Literal["compute"] = "compute"
        shares: Shares = None

    def lasting(self) -> np.ndarray:
        speed = self.setup.hardware.flops_per_s
        place = (-speed).argsort(1, kind="stable").argsort(1, kind="stable")
        return by_place(place, self.settings.shares, len(self.setup.sizes))
