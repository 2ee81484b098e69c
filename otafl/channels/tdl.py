"""Tapped delay line of 3GPP, TDL-A to TDL-E, on an OFDM grid.

Taps have the profile's delays and powers (Sionna's tables), so that fading is frequency-selective.
TDL-A and TDL-B have 23 taps and TDL-C 24, without line of sight. TDL-D has 13 and TDL-E 14 taps, of
which the first has a line of sight with a K-factor of 13.3 dB and 22 dB.

A tap is complex normal and independent over devices, blocks and rounds. For moving devices it is
the sum of sinusoids of Sionna's TDL (Xiao, Zheng, Beaulieu, eq. 6 and 11), with Jakes' correlation
in time. Sionna's draws start at time 0 and correlate the line of sight over antennas. Here any time
is available, and the line of sight has its power at all antennas.

References
----------
3GPP TR 38.901, "Study on channel model for frequencies from 0.5 to 100 GHz", 7.7.2.
Xiao, Zheng, Beaulieu 2006, "Novel Sum-of-Sinusoids Simulation Models for Rayleigh and Rician
    Fading Channels", IEEE Transactions on Wireless Communications 5(12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.channels import rayleigh
from otafl.channels.fading import FADING, correlate_antennas, keep_global_state
from otafl.channels.jakes import doppler_hz
from otafl.channels.ofdm import (
    PHASE,
    OfdmChannel,
    OfdmSettings,
    Pairs,
    declare_delay_spread,
    delay_rotations,
    group_frequencies,
    rotations,
)
from otafl.channels.plane_waves import line_array
from otafl.core.rng import declare_purpose

ANGLE = declare_purpose("fading_angle", __name__)
LINE_OF_SIGHT = declare_purpose("fading_los", __name__)
ARRIVAL = declare_purpose("los_arrival", __name__)

SINUSOIDS = 20
"""Sinusoids of a tap of moving devices, Sionna's default."""

LOS_COSINE = 0.7
"""Doppler shift of the line of sight over the largest one (TR 38.901 7.7.2)."""


@dataclass(frozen=True)
class TdlProfile:
    """Table of taps of a TDL profile, with powers that sum to one.

    Parameters
    ----------
    delay, power : Tensor, float64 [L]
        Delays at unit RMS delay spread, and powers of the fading taps.
    los_power : float
        Power of the line of sight in the first tap, 0 without one.
    """

    delay: Tensor
    power: Tensor
    los_power: float


def read_tdl_profile(letter: str) -> TdlProfile:
    """Read Sionna's table of TDL-A .. TDL-E, given the letter."""
    with keep_global_state():
        from sionna.phy.channel.tr38901 import TDL
    model = TDL(letter, 1.0, 3.5e9, precision="double", device="cpu")
    power = model.mean_powers.clone()
    los_power = float(model.mean_power_los) if model.los else 0.0
    power[0] -= los_power
    return TdlProfile(model.delays, power, los_power)


def arrival_cosines(spread: Tensor) -> Tensor:
    """Compute cos alpha_n of N sinusoids.

    Parameters
    ----------
    spread : Tensor, float64 [..., N]
        Random angle theta in (-pi / N, pi / N).

    Returns
    -------
    Tensor, float64 [..., N]
        cos(2 pi n / N + theta).
    """
    sinusoids = spread.shape[-1]
    order = torch.arange(1, sinusoids + 1, dtype=torch.float64, device=spread.device)
    return (2.0 * math.pi / sinusoids * order + spread).cos()


def sum_of_sinusoids(cycles: Tensor, cosine: Tensor, start: Tensor) -> Tensor:
    r"""Compute taps of unit power as sums of sinusoids.

    Parameters
    ----------
    cycles : Tensor, float64 [R, U]
        Cycles f_D t.
    cosine : Tensor, float64 [U, K, L, N]
        Cosines of the angles alpha_n.
    start : Tensor, complex [U, K, A, L, N]
        Phasors exp(j phi_n).

    Returns
    -------
    Tensor, complex [R, U, K, A, L]
        The taps.

    Notes
    -----
    .. math::

        N^{-1/2} \sum_n e^{j (2 \pi f_D t \cos \alpha_n + \phi_n)}
    """
    turning = rotations(cycles[:, :, None, None, None] * cosine, start.real.dtype)
    return (turning[:, :, :, None] * start).sum(-1) / math.sqrt(cosine.shape[-1])


class Tdl(OfdmChannel):
    """TDL channel; h [S, K, A, B, F] is complex with E|h|^2 = 1.

    The line of sight reaches the server's antennas, half a wavelength apart, at an angle of the
    device. The closed forms are for profiles without line of sight, in which each group is CN(0,
    1).
    """

    is_gaussian: ClassVar[bool] = True
    unit_mean_amplitude: ClassVar[float] = rayleigh.RAYLEIGH_AMPLITUDE

    class Settings(OfdmSettings):
        name: Literal["tdl-a", "tdl-b", "tdl-c", "tdl-d", "tdl-e"] = "tdl-a"
        delay_spread_s: float = declare_delay_spread()

    settings: Settings

    def prepare(self) -> None:
        settings, streams, bandwidth_hz = self.settings, self.streams, self.budget.bandwidth_hz
        profile = read_tdl_profile(settings.name[-1].upper())
        self._dtype = streams.dtype
        spread = self.hyper["delay_spread_s"]
        self._pairs = pairs = Pairs(streams, self.devices, bandwidth_hz, spread)
        self._power = profile.power.to(streams.device, streams.dtype)
        frequency = group_frequencies(bandwidth_hz[pairs.rows], settings.subcarrier_groups)
        delay = spread[pairs.rows].double()[:, None] * profile.delay.to(streams.device)
        rotation = delay_rotations(delay, frequency, streams.dtype)[:, None, None]
        self._los = None
        if profile.los_power:
            arrival = 2.0 * math.pi * pairs.draw_static_uniform(ARRIVAL, ()).double()
            level = torch.full_like(arrival, math.pi / 2.0)
            steering = rotations(line_array(arrival, level, settings.antennas), streams.dtype)
            self._los = math.sqrt(profile.los_power) * steering  # [U, K, A]
        self.has_closed_form = settings.antennas == 1 and self._los is None

        taps = (settings.antennas, len(self._power))
        numbers = 2 * pairs.count * self.devices * settings.antennas
        if settings.speed_kmh is not None:
            numbers *= max(len(self._power) * SINUSOIDS, settings.subcarrier_groups)
            spread = 2.0 * pairs.draw_static_uniform(ANGLE, (taps[1], SINUSOIDS)).double() - 1.0
            self._cosine = arrival_cosines(spread * (math.pi / SINUSOIDS))
            phase = pairs.draw_static_uniform(PHASE, (*taps, SINUSOIDS))
            self._start = rotations(phase, streams.dtype)
            self._los_start = pairs.draw_static_uniform(LINE_OF_SIGHT, ()).double()
        else:
            numbers *= max(len(self._power), settings.subcarrier_groups)
        self.build_states(pairs, rotation, delay[:, None], numbers)

    def compute_mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        return rayleigh.compute_mean_inverse(threshold, gain, error_variance)

    def draw_taps(self, index: Tensor, time_s: Tensor) -> Tensor:
        """Draw the taps, [R, U, K, A, L]."""
        settings = self.settings
        if settings.speed_kmh is None:
            shape = (2, settings.antennas, len(self._power))
            radius, angle = self._pairs.draw_uniform(FADING, index, shape).unbind(3)
            taps = (-radius.log() * self._power).sqrt() * rotations(angle, self._dtype)
            turn = self._pairs.draw_uniform(LINE_OF_SIGHT, index, ())  # its phase in cycles
        else:  # from sinusoids and phases of the whole run
            cycles = time_s * doppler_hz(settings.speed_kmh, settings.carrier_hz)
            taps = sum_of_sinusoids(cycles, self._cosine, self._start) * self._power.sqrt()
            turn = self._los_start + LOS_COSINE * cycles[..., None]
        taps = correlate_antennas(taps, settings.antenna_correlation, 3)
        if self._los is not None:
            los = self._los * rotations(turn, self._dtype)[..., None]
            taps = torch.cat([taps[..., :1] + los[..., None], taps[..., 1:]], -1)
        return taps
