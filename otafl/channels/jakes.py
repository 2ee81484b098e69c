"""Correlation of fading over time by the devices' motion.

Clarke's isotropic scattering has the autocorrelation J0(2 pi f_D tau) (Jakes). It is simulated by a
random sum of sinusoids,

    h(t) = sum_n exp(j (2 pi f_D t cos alpha_n + phi_n)) / sqrt(N),

with alpha_n uniform in the nth part of the circle, and phi_n uniform. Its autocorrelation over an
ensemble of trials and devices is J0 for any number N of sinusoids. E|h|^4 = 2 - 1/N, and the
distribution of |h|^2 is within 0.115 / N of the exponential one.

References
----------
Xiao, Zheng, Beaulieu 2006, "Novel Sum-of-Sinusoids Simulation Models for Rayleigh and Rician
    Fading Channels", IEEE Transactions on Wireless Communications 5(12).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.channels.base import Channel, FadingSettings
from otafl.channels.fading import correlate_antennas, draw_static_uniform
from otafl.core.contracts import unsqueeze_like
from otafl.core.rng import Purpose
from otafl.core.units import LIGHT_M_PER_S

SINUSOIDS = 32
CORRELATION = 0.1
MAX_CORRELATED_ROUNDS = 1 << 25
"""Largest number of rounds until fading counts as independent.

4096 draws that far apart, from round 2^30 on, end below round 2^40.
"""

_NUMBERS = 1 << 22


def doppler_hz(speed_kmh: float, carrier_hz: float) -> float:
    """Compute the largest Doppler shift f_D = v f_c / c in Hz."""
    return speed_kmh / 3.6 * carrier_hz / LIGHT_M_PER_S


def count_correlation_rounds(settings: FadingSettings) -> int:
    """Count the rounds after which fading is practically independent.

    From there on |J0| is below 0.1, because J0(x)^2 <= 2 / (pi x). The number is at most 2^25. For
    devices that hardly move, which would exceed it, averages over rounds that far apart are for
    their positions, not for the ensemble.
    """
    if settings.speed_kmh is None:
        return 1
    x = 2.0 / (math.pi * CORRELATION**2)
    doppler = doppler_hz(settings.speed_kmh, settings.carrier_hz)
    phase = 2.0 * math.pi * doppler * settings.round_interval_s
    return MAX_CORRELATED_ROUNDS if phase * MAX_CORRELATED_ROUNDS <= x else math.ceil(x / phase)


class Oscillators:
    """Rotations exp(j 2 pi f t) at fixed frequencies, with t the time of block b of round r.

    Rounds are `round_interval_s` apart. A coherence block lasts one second and hertz for each of
    its symbols, or for the payload if the section gives no length. Phases are in units of 2^-64 of
    a cycle, whose products with r and b wrap exactly, so that round 2^40 is as accurate as the
    first.

    Parameters
    ----------
    hz : Tensor, float64 [S, ...]
        Frequencies f.
    channel : Channel
        Channel with the settings of a fading channel.
    """

    def __init__(self, hz: Tensor, channel: Channel) -> None:
        settings: FadingSettings = channel.settings
        self._per_round = _wrap_turns(hz * settings.round_interval_s)
        self._per_block = torch.zeros_like(self._per_round)
        if settings.block_symbols is not None:
            block_s = settings.block_symbols / channel.budget.bandwidth_hz  # [S]
            self._per_block = _wrap_turns(hz * unsqueeze_like(block_s.double(), hz))

    def compute_rotations(self, round: int, first: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Return rotations [S, ..., B] of blocks first .. stop - 1 of a round.

        B rotations are products of two sets of sqrt(B), which saves most of the sines. `dtype` is
        real.
        """
        fine = math.isqrt(stop - first - 1) + 1
        coarse = torch.arange(first, stop, fine, device=self._per_round.device)
        turns = (self._per_round * round)[..., None] + self._per_block[..., None] * coarse
        rotation = _rotation(turns, dtype)
        if fine > 1:
            steps = self._per_block[..., None] * torch.arange(fine, device=coarse.device)
            rotation = (rotation[..., None] * _rotation(steps, dtype)[..., None, :]).flatten(-2)
        return rotation[..., : stop - first]


def _rotation(turns: Tensor, dtype: torch.dtype) -> Tensor:
    """Return exp(j 2 pi turns) of turns in units of 2^-64."""
    angle = (turns.double() * (2.0 * math.pi * 2.0**-64)).to(dtype)
    return torch.polar(torch.ones_like(angle), angle)


def _wrap_turns(value: Tensor) -> Tensor:
    """Return the fraction of a number of turns [...], in units of 2^-64, as signed integers."""
    return ((value - value.floor()) * 2.0**63).long() << 1


class Jakes:
    """Time-correlated Rayleigh fading as a sum of 32 sinusoids; h is [S, K, A, B].

    The angles of arrival are random for each device, the phases for each device and antenna. Both
    are constant during a trial, so that a round's fading does not need an earlier round. The same
    blocks in a longer payload are equal to rounding.

    Parameters
    ----------
    channel : Channel
        Channel with the settings of a fading channel.
    antennas : int
        Number of antennas, A.
    neighbours : float
        Correlation of neighbouring antennas.
    purpose : Purpose
        Name of the random streams.
    """

    def __init__(
        self, channel: Channel, antennas: int, neighbours: float, purpose: Purpose
    ) -> None:
        settings, streams = channel.settings, channel.streams
        shape = (SINUSOIDS, 1 + antennas)
        draw = draw_static_uniform(streams, channel.devices, purpose / "scatterers", shape)
        index = torch.arange(SINUSOIDS, device=streams.device)
        arrival = 2.0 * math.pi * (index + draw[..., 0]) / SINUSOIDS
        hz = doppler_hz(settings.speed_kmh, settings.carrier_hz) * arrival.cos()
        self._oscillators = Oscillators(hz, channel)
        angle = 2.0 * math.pi * draw[..., 1:].mT
        start = torch.polar(torch.full_like(angle, SINUSOIDS**-0.5), angle)
        self._dtype = streams.dtype
        self._start = correlate_antennas(start, neighbours, 2).to(
            self._dtype.to_complex()
        )  # [S, K, A, N]

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        """Compute h [S, K, A, B], for as many blocks at a time as fit the memory."""
        most = max(1, _NUMBERS // self._start[:, :, 0].numel())
        parts = []
        for first in range(0, blocks, most):
            stop = min(first + most, blocks)
            parts.append(
                self._start @ self._oscillators.compute_rotations(round, first, stop, self._dtype)
            )
        return torch.cat(parts, 3)
