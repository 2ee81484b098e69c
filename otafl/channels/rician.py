"""Rician fading, flat in frequency: a line of sight, and Rayleigh fading.

With a line-of-sight part |l| = 1 and a scattered part s, which is Rayleigh fading,

    h = sqrt(K / (K + 1)) l + sqrt(1 / (K + 1)) s.

The gain 2 |h|^2 (K + 1) is non-central chi-square with two degrees of freedom.

References
----------
Xiao, Zheng, Beaulieu 2006, "Novel Sum-of-Sinusoids Simulation Models for Rayleigh and Rician
    Fading Channels", IEEE Transactions on Wireless Communications 5(12), for moving devices.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from otafl.channels.base import Channel
from otafl.channels.fading import FADING, Fading, draw_static_uniform
from otafl.channels.jakes import Oscillators, doppler_hz
from otafl.channels.rayleigh import FlatFading, build_fading
from otafl.channels.ris import FlatFadingSettings
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear

_WIDTH = 12.0
_MAX_K = 1e7


class Rician(FlatFading):
    """Rician fading; h [S, K, A, 1, 1] is complex with E|h|^2 = 1.

    A reflecting surface increases E|h|^2. A device's line of sight has a uniform phase and, over a
    uniform linear array with half a wavelength between antennas, a uniform angle of arrival. Both
    are constant during a trial. If devices move, the phase changes with the line of sight's own
    Doppler shift.
    """

    class Settings(FlatFadingSettings):
        name: Literal["rician"] = "rician"
        k_factor_db: Decibels = declare_stackable(6.0)
        """K-factor in dB: power of the line of sight over the scattered power"""

    settings: Settings

    def build_direct(self) -> Fading:
        self._k_factor = db_to_linear(self.hyper["k_factor_db"])  # [S]
        return RicianFading(LineOfSight(self), build_fading(self), self._k_factor[:, None])

    @property
    def unit_mean_amplitude(self) -> Tensor:
        """E|h|, [S, 1]."""
        return compute_mean_amplitude(self._k_factor)[:, None]


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


class RicianFading:
    """Sum of the line of sight and the scattered part, by the K-factor [S, 1] or [S, K]."""

    def __init__(self, line: Fading, scattered: Fading, k_factor: Tensor) -> None:
        self._line, self._scattered = line, scattered
        total = 1.0 + k_factor
        self._line_root = (k_factor / total).sqrt()[..., None, None]
        self._scattered_root = (1.0 / total).sqrt()[..., None, None]

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        line = self._line_root * self._line.draw(round, blocks)
        return line + self._scattered_root * self._scattered.draw(round, blocks, among)


def compute_mean_amplitude(k_factor: Tensor) -> Tensor:
    r"""Compute E|h| of Rician fading with E|h|^2 = 1.

    Parameters
    ----------
    k_factor : Tensor
        K = |l|^2 / scattered, linear.

    Returns
    -------
    Tensor
        E|h|, shaped as `k_factor`.

    Notes
    -----
    .. math::

        E|h| = \sqrt{\frac{\pi}{4 (K + 1)}} L_{1/2}(-K), \quad
        L_{1/2}(-K) = e^{-K/2} [(1 + K) I_0(K/2) + K I_1(K/2)]
    """
    half = k_factor / 2.0
    laguerre = (1.0 + k_factor) * torch.special.i0e(half) + k_factor * torch.special.i1e(half)
    return (math.pi / (4.0 * (1.0 + k_factor))).sqrt() * laguerre


def compute_mean_inverse(line: float, scattered: float, threshold: float) -> float:
    """Compute E[1/g; g >= threshold] of the gain g = |h|^2 of Rician fading.

    Parameters
    ----------
    line, scattered : float
        Power |l|^2 of the line of sight, and mean power of the scattered part.
    threshold : float
        Linear threshold, above 0.

    Returns
    -------
    float
        The mean.

    Notes
    -----
    In units of `scattered`, g has the distribution Gamma(n + 1) with n ~ Poisson(K). For Gamma(n +
    1), E[1/g; g >= t] is P(Gamma(n) >= t) / n, and E1(t) for n = 0. Above K = 1e7 g counts as
    constant, with a relative error of 1e-7.
    """
    from scipy import special

    if line > _MAX_K * scattered:
        return 1.0 / line if line >= threshold else 0.0
    k_factor, start = line / scattered, threshold / scattered
    spread = _WIDTH * math.sqrt(k_factor) + 4.0 * _WIDTH
    n = np.arange(max(1.0, math.floor(k_factor - spread)), k_factor + spread)
    share = np.exp(special.xlogy(n, k_factor) - k_factor - special.gammaln(n + 1.0))
    value = float((share * special.gammaincc(n, start) / n).sum())
    return (value + math.exp(-k_factor) * float(special.exp1(start))) / scattered
