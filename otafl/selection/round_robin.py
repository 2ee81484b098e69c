"""Round robin: devices take turns; one that is busy when its turn comes is first once it is free.
Yang, Liu, Quek, Poor 2020, "Scheduling Policies for Federated Learning in Wireless Networks"."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.selection.choosing import SelectionSetup, lowest
from otafl.selection.config import RoundRobinSelectionConfig


class RoundRobin:
    """Keeps each device's place in the queue [S, K]; who has been served goes to its end."""

    narrows: ClassVar[bool] = False

    def __init__(self, config: RoundRobinSelectionConfig, setup: SelectionSetup) -> None:
        trials, devices = setup.budget.budget.shape
        self._place = np.tile(np.arange(devices), (trials, 1))
        self._end = devices

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        chosen, order = lowest(self._place, free, wanted)
        behind = self._end + np.arange(order.shape[1])
        here = np.take_along_axis(self._place, order, 1)
        served = np.take_along_axis(chosen, order, 1)
        np.put_along_axis(self._place, order, np.where(served, behind, here), 1)
        self._end += order.shape[1]
        return chosen

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        return None
