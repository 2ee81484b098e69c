"""Additive white Gaussian noise: no fading, h = 1."""

from __future__ import annotations

from typing import ClassVar

import torch
from scipy import integrate, stats

from otafl.channels.config import AwgnConfig
from otafl.contracts import ChannelState, LinkBudget
from otafl.rng import Streams


class Awgn:
    """h: [S, K, 1, 1, 1] of ones."""

    unit_mean_amplitude: ClassVar[float] = 1.0

    def __init__(
        self, config: AwgnConfig, budget: LinkBudget, devices: int, streams: Streams
    ) -> None:
        trials = streams.size
        ctype = torch.complex128 if streams.dtype == torch.float64 else torch.complex64
        self._state = ChannelState(
            h=torch.ones(trials, devices, 1, 1, 1, dtype=ctype, device=streams.device),
            gain=budget.gain[:, None].expand(trials, devices),
        )

    def state(self, round: int) -> ChannelState:
        return self._state

    def mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        """E[1/g; g >= threshold] of the estimate's gain g = gain |1 + e|^2, e ~ CN(0, variance):
        g is a scaled non-central chi-square of two degrees of freedom."""
        if error_variance == 0.0:
            return 1.0 / gain if gain >= threshold else 0.0
        scale = gain * error_variance / 2.0
        law = stats.ncx2(2, 2.0 / error_variance)
        value, _ = integrate.quad(
            lambda g: law.pdf(g / scale) / scale / g,
            threshold,
            gain * (1.0 + 12.0 * error_variance**0.5) ** 2,
            points=[max(threshold, gain)],
            limit=200,
        )
        return float(value)
