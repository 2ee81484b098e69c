"""Largest models for the devices that compute fastest."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.submodels.base import Shares, SubmodelAssignment, assign_by_rank


class ComputeLevels(SubmodelAssignment):
    """Capacity levels by the speed of the processor.

    Examples
    --------
    `docs/heterogeneous.md` has a scenario with `capacity_levels: compute`.
    """

    class Settings(SubmodelAssignment.Settings):
        example: ClassVar = {
            **SubmodelAssignment.Settings.example,
            "devices.compute.name": "lognormal",
        }

        name: Literal["compute"] = "compute"
        shares: Shares = None

    def get_fixed_levels(self) -> np.ndarray:
        speed = self.setup.hardware.flops_per_s
        place = (-speed).argsort(1, kind="stable").argsort(1, kind="stable")
        return assign_by_rank(place, self.settings.shares, len(self.setup.submodels))
