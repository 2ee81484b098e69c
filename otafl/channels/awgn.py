"""Additive white Gaussian noise without fading, h = 1."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from otafl.channels import rician
from otafl.channels.base import Channel, ChannelSettings
from otafl.core.contracts import ChannelState


class Awgn(Channel):
    """Channel without fading; h [S, K, A, 1, 1] is 1."""

    unit_mean_amplitude: ClassVar[float] = 1.0

    class Settings(ChannelSettings):
        name: Literal["awgn"] = "awgn"
        antennas: int = Field(1, ge=1)
        """number of antennas of the server, A; h = 1 at each"""

    settings: Settings

    def prepare(self) -> None:
        antennas, streams = self.settings.antennas, self.streams
        self.has_closed_form = antennas == 1
        size = (streams.num_trials, self.devices, antennas, 1, 1)
        h = torch.ones(size, dtype=streams.dtype.to_complex(), device=streams.device)
        self._state = ChannelState(h=h, gain=self.budget.gain)

    def get_state(self, round: int) -> ChannelState:
        return self._state

    def compute_mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        """Compute E[1/g; g >= threshold] of the estimated gain g.

        With the error e ~ CN(0, error_variance) of the estimate, g = gain |1 + e|^2.
        """
        return rician.compute_mean_inverse(gain, gain * error_variance, threshold)
