"""Tapped delay lines TDL-A to TDL-E of 3GPP TR 38.901 7.7.2: taps at the profile's delays and
powers (Sionna's tables), frequency-selective on an OFDM grid.

A tap is complex normal, independent over devices, blocks, rounds. Of moving devices it is the sum
of sinusoids that Sionna's TDL draws (Xiao, Zheng, Beaulieu 2006, eq. 6 and 11), with Jakes'
correlation in time. Sionna's own draws start at time 0 and colour the line of sight with the
antennas' correlation; here time is anywhere, and the line of sight has its power at all antennas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from otafl.channels.config_3gpp import TdlConfig
from otafl.channels.correlation import correlated
from otafl.channels.jakes import doppler_hz
from otafl.channels.ofdm import (
    OfdmStates,
    Pairs,
    delay_rotations,
    frequency_response,
    group_frequencies,
    rotations,
)
from otafl.channels.plane_waves import line_array
from otafl.channels.rayleigh import Rayleigh
from otafl.channels.scattering import rounds_apart
from otafl.channels.sionna_rng import keep_global_state
from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.rng import Streams

LOS_COSINE = 0.7
"""Doppler shift of the line of sight over the greatest one (TR 38.901 7.7.2)."""


@dataclass(frozen=True)
class Profile:
    """delay: [L], of unit RMS spread where scaled. power: [L] of the taps that fade, and los_power
    of the line of sight in the first; they sum to one. float64."""

    delay: Tensor
    power: Tensor
    los_power: float


def tdl_profile(letter: str) -> Profile:
    """Sionna's table of TDL-A .. TDL-E."""
    with keep_global_state():
        from sionna.phy.channel.tr38901 import TDL
    model = TDL(letter, 1.0, 3.5e9, precision="double", device="cpu")
    power = model.mean_powers.clone()
    los_power = float(model.mean_power_los) if model.los else 0.0
    power[0] -= los_power
    return Profile(model.delays, power, los_power)


def arrival_cosines(spread: Tensor) -> Tensor:
    """cos alpha_n, alpha_n = 2 pi n / N + theta: spread [..., N], theta in (-pi/N, pi/N)."""
    sinusoids = spread.shape[-1]
    order = torch.arange(1, sinusoids + 1, dtype=torch.float64, device=spread.device)
    return (2.0 * math.pi / sinusoids * order + spread).cos()


def sum_of_sinusoids(cycles: Tensor, cosine: Tensor, start: Tensor) -> Tensor:
    """Unit-power taps N^-1/2 sum_n exp(j (2 pi f_D t cos alpha_n + phi_n)) [R, U, K, A, L] complex.

    cycles: [R, U] f_D t, float64. cosine: [U, K, L, N], of alpha. start: [U, K, A, L, N] complex,
    exp(j phi).
    """
    turning = rotations(cycles[:, :, None, None, None] * cosine, start.real.dtype)
    return (turning[:, :, :, None] * start).sum(-1) / math.sqrt(cosine.shape[-1])


class Tdl:
    """h: [S, K, A, B, F] complex, E|h|^2 = 1.

    The line of sight reaches the server's antennas, half a wavelength apart, at an angle of the
    device's own. The closed forms are those of one antenna without line of sight: each group is
    CN(0, 1).
    """

    normal: ClassVar[bool] = True
    unit_mean_amplitude: ClassVar[float] = Rayleigh.unit_mean_amplitude

    def __init__(
        self,
        config: TdlConfig,
        budget: LinkBudget,
        devices: int,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        profile = tdl_profile(config.name[-1].upper())  # type: ignore[attr-defined]
        self._config, self._dtype, self._gain = config, streams.dtype, budget.gain
        spread = hyper["delay_spread_s"]
        self._pairs = pairs = Pairs(streams, devices, budget.bandwidth_hz, spread)
        self._power = profile.power.to(streams.device, streams.dtype)
        frequency = group_frequencies(budget.bandwidth_hz[pairs.rows], config.subcarrier_groups)
        delay = spread[pairs.rows].double()[:, None] * profile.delay.to(streams.device)
        self._rotation = delay_rotations(delay, frequency, streams.dtype)[:, None, None]
        self._los = None
        if profile.los_power:
            arrival = 2.0 * math.pi * pairs.once("los_arrival", ()).double()
            level = torch.full_like(arrival, math.pi / 2.0)
            steering = rotations(line_array(arrival, level, config.antennas), streams.dtype)
            self._los = math.sqrt(profile.los_power) * steering  # [U, K, A]
        self.closed_form = config.antennas == 1 and self._los is None
        self.correlation_rounds = rounds_apart(config)

        taps = (config.antennas, len(self._power))
        numbers = 2 * pairs.count * devices * config.antennas
        self._moves = config.speed_kmh is not None
        if self._moves:
            numbers *= max(len(self._power) * config.sinusoids, config.subcarrier_groups)
            spread = 2.0 * pairs.once("fading_angle", (taps[1], config.sinusoids)).double() - 1.0
            self._cosine = arrival_cosines(spread * (math.pi / config.sinusoids))
            phase = pairs.once("fading_phase", (*taps, config.sinusoids))
            self._start = rotations(phase, streams.dtype)
            self._los_start = pairs.once("fading_los", ()).double()
        else:
            numbers *= max(len(self._power), config.subcarrier_groups)
        self._states = OfdmStates(config, budget, pairs, self._draw, numbers)

    def state(self, round: int) -> ChannelState:
        return self._states.state(round, self._gain)

    mean_inverse = Rayleigh.mean_inverse

    def _draw(self, index: Tensor, time_s: Tensor) -> Tensor:
        """[R, U, K, A, F]."""
        taps, turn = self._moving(time_s) if self._moves else self._fresh(index)
        taps = correlated(taps, self._config.antenna_correlation, 3)
        if self._los is not None:
            los = self._los * rotations(turn, self._dtype)[..., None]
            taps = torch.cat([taps[..., :1] + los[..., None], taps[..., 1:]], -1)
        return frequency_response(taps, self._rotation)

    def _fresh(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Taps [R, U, K, A, L] ~ CN(0, power) and the line of sight's phase [R, U, K] in cycles."""
        shape = (2, self._config.antennas, len(self._power))
        radius, turn = self._pairs.uniform("fading", index, shape).unbind(3)
        taps = (-radius.log() * self._power).sqrt() * rotations(turn, self._dtype)
        return taps, self._pairs.uniform("fading_los", index, ())

    def _moving(self, time_s: Tensor) -> tuple[Tensor, Tensor]:
        """The same at times [R, U], of sinusoids and a phase that last for the whole run."""
        assert self._config.speed_kmh is not None
        cycles = time_s * doppler_hz(self._config.speed_kmh, self._config.carrier_hz)
        taps = sum_of_sinusoids(cycles, self._cosine, self._start) * self._power.sqrt()
        return taps, self._los_start + LOS_COSINE * cycles[..., None]
