"""One level of every device for the whole run (FedHM's fixed heterogeneity)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.submodels.base import DRAWS, Shares, SubmodelAssignment, assign_by_rank


class FixedLevels(SubmodelAssignment):
    """Fixed capacity levels.

    Examples
    --------
    `studies/fedhm/fedhm_table3.yaml` uses it.
    """

    class Settings(SubmodelAssignment.Settings):
        name: Literal["fixed"] = "fixed"
        shares: Shares = None
        assignment: Literal["blocks", "random"] = "blocks"
        """order of the devices: blocks, the first devices have the largest models; random, drawn
        once a trial"""

    def get_fixed_levels(self) -> np.ndarray:
        devices = self.setup.hardware.flops_per_s.shape[1]
        place = np.arange(devices)
        if self.settings.assignment == "random":
            generators = self.setup.link.streams.make_generators(DRAWS)
            place = np.stack([generator.permutation(devices) for generator in generators])
        return assign_by_rank(place, self.settings.shares, len(self.setup.submodels))
