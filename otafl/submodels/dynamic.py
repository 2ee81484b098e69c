"""A random level of every device in every round (FedHM's dynamic heterogeneity).

The shares are the probabilities of the levels.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.submodels.base import (
    DRAWS,
    Shares,
    SubmodelAssignment,
    SubmodelSetup,
    compute_share_bounds,
)


class DynamicLevels(SubmodelAssignment):
    """Random capacity levels.

    Examples
    --------
    `studies/fedhm/fedhm_table2.yaml` uses it.
    """

    class Settings(SubmodelAssignment.Settings):
        name: Literal["dynamic"] = "dynamic"
        shares: Shares = None

    def __init__(self, settings: Settings, setup: SubmodelSetup) -> None:
        super().__init__(settings, setup)
        self._bounds = torch.from_numpy(compute_share_bounds(settings.shares, len(setup.submodels)))

    def assign_levels(self, cohort: Cohort, round: int, state: ChannelState) -> Tensor:
        streams = self.setup.link.streams
        at = streams.draw_device_uniform(DRAWS, round, cohort.trial, cohort.device, (1,))
        return torch.searchsorted(self._bounds.to(at), at.flatten().contiguous(), right=True)
