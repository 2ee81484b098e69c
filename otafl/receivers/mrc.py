"""Maximum-ratio combining of the sum of the devices' channels, f = sum_k h_k / |sum_k h_k|. With it
the devices need no channel knowledge (Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning"):
f^H h_k is real and equal for all in the limit of many antennas."""

from __future__ import annotations

from torch import Tensor

from otafl.receivers.config import MrcConfig
from otafl.receivers.unit import normalised


class Mrc:
    def __init__(self, config: MrcConfig) -> None:
        self.scale = config.scale

    def combine(self, h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
        return normalised((h * sends[:, None, :, None]).sum(2))
