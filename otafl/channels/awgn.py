"""Additive white Gaussian noise: no fading, h = 1."""

from __future__ import annotations

from typing import ClassVar

import torch

from otafl.channels import rice
from otafl.channels.config import AwgnConfig
from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.rng import Streams


class Awgn:
    """h: [S, K, A, 1, 1] of ones. The closed forms are those of one antenna."""

    correlation_rounds: ClassVar[int] = 1
    unit_mean_amplitude: ClassVar[float] = 1.0

    def __init__(
        self,
        config: AwgnConfig,
        budget: LinkBudget,
        devices: int,
        streams: Streams,
        hyper: Hyper | None = None,
    ) -> None:
        self.closed_form = config.antennas == 1
        size = (streams.size, devices, config.antennas, 1, 1)
        h = torch.ones(size, dtype=streams.dtype.to_complex(), device=streams.device)
        self._state = ChannelState(h=h, gain=budget.gain)

    def state(self, round: int) -> ChannelState:
        return self._state

    def mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        """E[1/g; g >= threshold] of the estimate's gain g = gain |1 + e|^2, e ~ CN(0, variance)."""
        return rice.mean_inverse(gain, gain * error_variance, threshold)
