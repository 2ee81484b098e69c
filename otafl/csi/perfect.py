"""Exact channel knowledge of devices and server: the estimate is h."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.csi.base import Csi


class Perfect(Csi):
    """Perfect channel state information.

    Study: `studies/power_control/fashion_mnist_gbma_ci.yaml`.
    """

    is_perfect: ClassVar[bool] = True

    class Settings(Csi.Settings):
        name: Literal["perfect"] = "perfect"

    @property
    def variance(self) -> Tensor:
        like = self.streams
        return torch.zeros(like.num_trials, dtype=like.dtype, device=like.device)

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> None:
        return None
