"""Choose uniformly, without replacement: partial participation.

References
----------
McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data".
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.core import settings
from otafl.core.contracts import ChannelState
from otafl.selection.base import Selection
from otafl.selection.choosing import lowest, random_key


class Uniform(Selection):
    class Settings(settings.Settings):
        name: Literal["uniform"] = "uniform"

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        return lowest(random_key(self.setup.streams, round, free.shape[1]), free, wanted)[0]
