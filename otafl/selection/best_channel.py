"""The best channels: opportunistic scheduling. Knopp and Humblet 1995, "Information Capacity and
Power Control in Single-Cell Multiuser Communications".

Of K devices with independent Rayleigh fading and one mean gain, the best has H_K = 1 + 1/2 + .. +
1/K times the mean.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.selection.choosing import SelectionSetup, host, lowest
from otafl.selection.config import BestChannelSelectionConfig


class BestChannel:
    narrows: ClassVar[bool] = False

    def __init__(self, config: BestChannelSelectionConfig, setup: SelectionSetup) -> None:
        self._setup = setup

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        return lowest(-host(self._setup.gains(state, round)), free, wanted)[0]

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        return self._setup.unheard_pilots(available, cohort)
