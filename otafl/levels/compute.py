"""Give the largest models to the devices that compute fastest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.levels.base import SHARES, Levels, Shares, by_place


class ComputeLevels(Levels):
    class Settings(Levels.Settings):
        example: ClassVar[Mapping[str, Any]] = {
            **Levels.Settings.example,
            "devices.compute.name": "lognormal",
        }

        name: Literal["compute"] = "compute"
        shares: Shares | None = Field(None, description=SHARES)

    def lasting(self) -> np.ndarray:
        speed = self.setup.hardware.flops_per_s
        place = (-speed).argsort(1, kind="stable").argsort(1, kind="stable")
        return by_place(place, self.setup.bounds(self.settings.shares))
