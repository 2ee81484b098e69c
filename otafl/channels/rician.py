"""Rician fading, flat in frequency: a line of sight, and Rayleigh fading.

With a line-of-sight part |l| = 1 and a scattered part s, which is Rayleigh fading,

    h = sqrt(K / (K + 1)) l + sqrt(1 / (K + 1)) s.

References
----------
Xiao, Zheng, Beaulieu 2006, "Novel Sum-of-Sinusoids Simulation Models for Rayleigh and Rician
    Fading Channels", IEEE Transactions on Wireless Communications 5(12), for moving devices.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.channels import rice
from otafl.channels.base import Channel
from otafl.channels.fading import FADING, Fading, draw_static_uniform
from otafl.channels.jakes import Oscillators, count_correlation_rounds, doppler_hz
from otafl.channels.scattering import FlatFadingSettings, FlatStates, build_scattering
from otafl.core.contracts import ChannelState
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear


class Rician(Channel):
    """Rician fading; h [S, K, A, 1, 1] is complex with E|h|^2 = 1.

    A reflecting surface increases E|h|^2. A device's line of sight has a uniform phase and, over a
    uniform linear array with half a wavelength between antennas, a uniform angle of arrival. Both
    are constant during a trial. If devices move, the phase changes with the line of sight's own
    Doppler shift.
    """

    is_flat: ClassVar[bool] = True

    class Settings(FlatFadingSettings):
        name: Literal["rician"] = "rician"
        k_factor_db: Decibels = declare_stackable(6.0)
        """K-factor in dB: power of the line of sight over the scattered power"""

    settings: Settings

    def prepare(self) -> None:
        self.has_closed_form = self.settings.antennas == 1 and self.settings.ris is None
        self.correlation_rounds = count_correlation_rounds(self.settings)
        self.num_sounded_paths = self.settings.num_sounded_paths
        self._k_factor = db_to_linear(self.hyper["k_factor_db"])  # [S]
        direct = _Sum(LineOfSight(self), build_scattering(self), self._k_factor)
        self._states = FlatStates(self, direct)

    @property
    def unit_mean_amplitude(self) -> Tensor:
        """E|h|, [S, 1]."""
        return rice.mean_amplitude(self._k_factor)[:, None]

    def get_state(self, round: int) -> ChannelState:
        return self._states.get_state(round)

    def get_state_of_devices(self, round: int, devices: Tensor) -> ChannelState:
        return self._states.get_state(round, devices)


class LineOfSight:
    """Line-of-sight part l [S, K, A, B] with |l| = 1.

    Parameters
    ----------
    channel : Channel
        Channel with the settings of a flat fading channel.
    """

    def __init__(self, channel: Channel) -> None:
        settings, streams = channel.settings, channel.streams
        draw = draw_static_uniform(streams, channel.devices, FADING / "line_of_sight", (1, 3))
        phase, arrival, heading = (2.0 * math.pi * draw).unbind(-1)
        antenna = torch.arange(settings.antennas, device=streams.device)
        phases = phase + math.pi * arrival.sin() * antenna
        start = torch.polar(torch.ones_like(phases), phases)[..., None]
        self._dtype = streams.dtype
        self._start = start.to(self._dtype.to_complex())
        self._oscillators = None
        if settings.speed_kmh is not None:
            hz = doppler_hz(settings.speed_kmh, settings.carrier_hz) * heading.cos()
            self._oscillators = Oscillators(hz, channel)

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        """Return l [S, K, A, blocks]."""
        if self._oscillators is None:
            return self._start.expand(-1, -1, -1, blocks)
        return self._start * self._oscillators.compute_rotations(round, 0, blocks, self._dtype)


class _Sum:
    """Sum of the line of sight and the scattered part, by the K-factor [S]."""

    def __init__(self, line: Fading, scattered: Fading, k_factor: Tensor) -> None:
        self._line, self._scattered = line, scattered
        total = 1.0 + k_factor
        self._line_root = (k_factor / total).sqrt()[:, None, None, None]
        self._scattered_root = (1.0 / total).sqrt()[:, None, None, None]

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        line = self._line_root * self._line.draw(round, blocks)
        return line + self._scattered_root * self._scattered.draw(round, blocks, among)
