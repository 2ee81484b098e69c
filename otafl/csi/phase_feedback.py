"""Exact amplitude of the channel, and its phase with a few bits.

The estimate of each antenna's channel is |h| exp(j Q(angle h)): the phase is rounded to the nearest
of 2^b equally spaced levels, one of which is 0. The error of a uniform phase is uniform in [-x, x],
x = pi / 2^b, so E cos(error) = sin(x) / x. The feedback is sent on the downlink, and its bits are
not counted. The paths by which a reflecting surface is set are estimated in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import unsqueeze_like
from otafl.core.settings import declare_stackable
from otafl.csi.base import Csi


class PhaseFeedback(Csi):
    """Quantised phase feedback."""

    class Settings(Csi.Settings):
        name: Literal["phase_feedback"] = "phase_feedback"
        bits: int = declare_stackable(2, ge=1, le=16)
        """bits of the phase, which has 2^bits levels"""

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return self._round_phases(h)

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        return self._round_phases(paths(round))

    def _round_phases(self, h: Tensor) -> Tensor:
        """Round the phases of the trials' channels h [S, ...]."""
        step = unsqueeze_like(2.0 * math.pi / 2.0 ** self.hyper["bits"], h)
        return torch.polar(h.abs(), torch.round(h.angle() / step) * step)
