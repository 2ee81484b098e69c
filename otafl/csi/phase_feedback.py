"""Quantised phase feedback: devices learn the phase of their channel by so many bits, and its
amplitude exactly.

The phase is rounded to the nearest of 2^b equally spaced levels, of which 0 is one. Of a uniform
phase the error is uniform in [-x, x], x = pi / 2^b, so E cos(error) = sin(x) / x. The feedback goes
down with the model; its bits are not counted.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from otafl.channels.config import PhaseFeedbackCsiConfig
from otafl.core.contracts import Channel, Hyper, LinkBudget
from otafl.core.rng import Streams


class PhaseFeedback:
    """The estimate is |h| exp(j Q(angle h)), of each antenna's channel."""

    pilot_symbols: ClassVar[int] = 0
    variance: ClassVar[Tensor | None] = None

    def __init__(
        self,
        config: PhaseFeedbackCsiConfig,
        channel: Channel,
        budget: LinkBudget,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self._step = 2.0 * math.pi / 2.0 ** hyper["bits"]

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        step = self._step.view(-1, *[1] * (h.dim() - 1))
        return torch.polar(h.abs(), torch.round(h.angle() / step) * step)
