"""Uniform selection without replacement: partial participation as in McMahan et al. 2017."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.selection.choosing import SelectionSetup, lowest, random_key
from otafl.selection.config import UniformSelectionConfig


class Uniform:
    narrows: ClassVar[bool] = False

    def __init__(self, config: UniformSelectionConfig, setup: SelectionSetup) -> None:
        self._streams = setup.streams

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        return lowest(random_key(self._streams, round, free.shape[1]), free, wanted)[0]

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        return None
