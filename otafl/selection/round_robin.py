"""Devices in turn, those with the longest wait first (round robin).

A device that is busy in its turn is first once it is available.

References
----------
Yang, Liu, Quek, Poor 2020, "Scheduling Policies for Federated Learning in Wireless Networks".
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.core.contracts import ChannelState
from otafl.selection.base import Devices, NumWanted, Selection, SelectionSetup, select_lowest


class RoundRobin(Selection):
    """Round-robin scheduling, with the position [S, K] of each device in the queue as state.

    A served device moves to the end of the queue.

    Examples
    --------
    `devices.selection: round_robin` in a scenario with `devices.participants`.
    """

    state_attrs: ClassVar = ("_place", "_end")
    is_channel_blind: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["round_robin"] = "round_robin"

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        trials, devices = setup.budget.budget.shape
        self._place = np.tile(np.arange(devices), (trials, 1))
        self._end = devices

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        chosen, order = select_lowest(self._place, available, wanted)
        behind = self._end + np.arange(order.shape[1])
        here = np.take_along_axis(self._place, order, 1)
        served = np.take_along_axis(chosen, order, 1)
        np.put_along_axis(self._place, order, np.where(served, behind, here), 1)
        self._end += order.shape[1]
        return chosen
