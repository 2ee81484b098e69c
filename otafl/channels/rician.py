"""Flat Rician fading: h = sqrt(K/(K+1)) l + sqrt(1/(K+1)) s of a line-of-sight part |l| = 1 and a
scattered part s, which is Rayleigh fading (for moving devices: Xiao, Zheng and Beaulieu 2006)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.channels import rice
from otafl.channels.config import RicianConfig
from otafl.channels.jakes import Oscillators, doppler_hz
from otafl.channels.ris import with_surface
from otafl.channels.scattering import (
    Fading,
    block_seconds,
    flat_state,
    rounds_apart,
    scattering,
)
from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.rng import Streams


class Rician:
    """h: [S, K, A, 1, 1] complex, E|h|^2 = 1 (with a reflecting surface, more). hyper: k_factor_db
    [S].

    A device's line of sight has a uniform phase and, over a uniform linear array of half a
    wavelength's spacing, a uniform angle of arrival, both fixed over the trial; where devices
    move, its phase turns with its own Doppler shift. The closed forms are those of one antenna.
    """

    def __init__(
        self,
        config: RicianConfig,
        budget: LinkBudget,
        devices: int,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self.closed_form = config.antennas == 1 and config.ris is None
        self.correlation_rounds = rounds_apart(config)
        self._config, self._gain = config, budget.gain
        self._k_factor = torch.pow(10.0, hyper["k_factor_db"] / 10.0)  # [S]
        scattered = scattering(
            config, budget, devices, config.antennas, config.antenna_correlation, streams
        )
        line = LineOfSight(config, budget, devices, streams)
        direct = _Sum(line, scattered, self._k_factor)
        self._fading = with_surface(direct, config, budget, devices, streams)

    @property
    def unit_mean_amplitude(self) -> Tensor:
        """[S, 1]."""
        return rice.mean_amplitude(self._k_factor)[:, None]

    def state(self, round: int) -> ChannelState:
        return flat_state(self._fading, self._config, self._gain, round)


class LineOfSight:
    """l: [S, K, A, B], |l| = 1."""

    def __init__(
        self, config: RicianConfig, budget: LinkBudget, devices: int, streams: Streams
    ) -> None:
        trials = streams.size
        pair = torch.arange(trials * devices, device=streams.device)
        draw = streams.device_uniform(
            "fading/line_of_sight", 0, pair // devices, pair % devices, (3,)
        )
        angles = 2.0 * math.pi * draw.double().view(trials, devices, 1, 3)
        phase, arrival, heading = angles.unbind(-1)
        antenna = torch.arange(config.antennas, device=streams.device)
        phases = phase + math.pi * arrival.sin() * antenna
        start = torch.polar(torch.ones_like(phases), phases)[..., None]
        self._dtype = streams.dtype
        self._start = start.to(self._dtype.to_complex())
        self._oscillators = None
        if config.speed_kmh is not None:
            hz = doppler_hz(config.speed_kmh, config.carrier_hz) * heading.cos()
            seconds = block_seconds(config, budget)
            self._oscillators = Oscillators(hz, config.round_interval_s, seconds)

    def draw(self, round: int, blocks: int) -> Tensor:
        if self._oscillators is None:
            return self._start.expand(-1, -1, -1, blocks)
        return self._start * self._oscillators.at(round, 0, blocks, self._dtype)


class _Sum:
    """Line of sight and scattered part by the K-factor [S]."""

    def __init__(self, line: Fading, scattered: Fading, k_factor: Tensor) -> None:
        self._line, self._scattered = line, scattered
        total = 1.0 + k_factor
        self._line_root = (k_factor / total).sqrt()[:, None, None, None]
        self._scattered_root = (1.0 / total).sqrt()[:, None, None, None]

    def draw(self, round: int, blocks: int) -> Tensor:
        line = self._line_root * self._line.draw(round, blocks)
        return line + self._scattered_root * self._scattered.draw(round, blocks)
