"""One antenna: the first one, whatever the others receive."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.receivers.config import ScalarConfig


class Scalar:
    def __init__(self, config: ScalarConfig) -> None:
        self.scale = config.scale

    def combine(self, h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
        combiner = torch.zeros_like(h[:, :, 0])
        combiner[..., 0] = 1.0
        return combiner
