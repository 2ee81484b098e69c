"""Uniform selection without replacement (partial participation).

References
----------
McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data".
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.core.contracts import ChannelState
from otafl.selection.base import Devices, NumWanted, Selection, draw_random_key, select_lowest


class UniformSelection(Selection):
    """Uniform selection of participants.

    Examples
    --------
    `studies/analog_vs_digital/analog_vs_digital.yaml` uses it.
    """

    is_channel_blind: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["uniform"] = "uniform"

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return select_lowest(self.get_keys(round, available.shape[1]), available, wanted)[0]

    def get_keys(self, round: int, devices: int) -> np.ndarray:
        return draw_random_key(self.setup.streams, round, devices)
