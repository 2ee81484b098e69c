"""Clustered delay lines CDL-A to CDL-E of 3GPP TR 38.901 7.7.1 (Sionna's tables), uplink, on an
OFDM grid: 20 rays a cluster at the tabulated angles (eq. 7.7-0a), so that the server's antennas are
correlated and frequencies selective.

A device has a bearing of its own, by which all its angles at the server are turned (TR 38.901
7.7.5.1 moves the mean angle likewise), and a random coupling of its rays' angles (step 8); both
last for the run. Phases are random, that of the line of sight too: its distance is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.channels.config_3gpp import CdlConfig
from otafl.channels.ofdm import OfdmStates, Pairs, group_frequencies
from otafl.channels.plane_waves import (
    RAY_OFFSETS,
    RAYS,
    PlaneWaves,
    Rays,
    unit_vector,
    velocities,
)
from otafl.channels.scattering import rounds_apart
from otafl.channels.sionna_rng import keep_global_state
from otafl.core.contracts import ChannelState, Hyper, LinkBudget
from otafl.core.rng import Streams


@dataclass(frozen=True)
class Profile:
    """power, delay: [C] of the clusters, delays of unit RMS spread. angles: [4, C] degrees: azimuth
    and zenith at the server, azimuth and zenith at the device. spread: their 4 cluster spreads.
    los_power, los_angles [4]: of the line of sight. Powers sum to one."""

    power: Tensor
    delay: Tensor
    angles: Tensor
    spread: Tensor
    los_power: float
    los_angles: Tensor


def cdl_profile(letter: str) -> Profile:
    """Sionna's table of CDL-A .. CDL-E. It is that of a downlink: departure is at the server."""
    with keep_global_state():
        from sionna.phy.channel.tr38901 import models
    table: dict[str, Any] = models.load_json(models.parameter_file(f"CDL-{letter}.json"))
    power = 10.0 ** (torch.tensor(table["powers"], dtype=torch.float64) / 10.0)
    power = power / power.sum()
    delay = torch.tensor(table["delays"], dtype=torch.float64)
    angles, spread = (
        torch.tensor([table[key] for key in keys], dtype=torch.float64)
        for keys in (("aod", "zod", "aoa", "zoa"), ("cASD", "cZSD", "cASA", "cZSA"))
    )
    first = 1 if table["los"] else 0  # the line of sight comes before the clusters
    return Profile(
        power=power[first:],
        delay=delay[first:],
        angles=angles[:, first:],
        spread=spread,
        los_power=float(power[0]) if first else 0.0,
        los_angles=angles[:, 0],
    )


def cdl_rays(profile: Profile, coupling: Tensor, bearing: Tensor, delay_spread_s: Tensor) -> Rays:
    """The rays of U x K devices. coupling: [U, K, 4, C, 20] int64, the order of each angle's rays
    in a cluster. bearing: [U, K] radians. delay_spread_s: [U]. The line of sight is a path of its
    own, the last."""
    offset = torch.tensor(RAY_OFFSETS, dtype=torch.float64, device=coupling.device)
    offset = torch.stack([offset, -offset], -1).view(-1)  # 20, in the table's order
    mean, spread = profile.angles.to(coupling.device), profile.spread.to(coupling.device)
    angles = mean[..., None] + spread[:, None, None] * offset[coupling]  # eq. 7.7-0a
    angles = angles.flatten(3)  # [U, K, 4, C * 20]
    power = (profile.power / RAYS).repeat_interleave(RAYS).to(coupling.device)
    delay = profile.delay.to(coupling.device)
    path = (RAYS,) * len(delay)
    if profile.los_power:
        los = profile.los_angles.to(angles)[:, None].expand(*angles.shape[:3], 1)
        angles = torch.cat([angles, los], -1)
        power = torch.cat([power, power.new_tensor([profile.los_power])])
        delay = torch.cat([delay, delay.new_zeros(1)])
        path = (*path, 1)
    azimuth, zenith, device_azimuth, device_zenith = angles.deg2rad().unbind(2)
    pairs = azimuth.shape[:2]
    return Rays(
        power=power.expand(*pairs, -1),
        path=path,
        delay_s=(delay * delay_spread_s[:, None, None]).expand(*pairs, -1),
        azimuth=azimuth - bearing[..., None],
        zenith=zenith,
        travel=unit_vector(device_azimuth, device_zenith),
    )


class Cdl:
    """h: [S, K, A, B, F] complex, E|h|^2 = 1."""

    closed_form: ClassVar[bool] = False

    def __init__(
        self,
        config: CdlConfig,
        budget: LinkBudget,
        devices: int,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self._gain = budget.gain
        pairs = Pairs(streams, devices, budget.bandwidth_hz, hyper["delay_spread_s"])
        profile = cdl_profile(config.name[-1].upper())  # type: ignore[attr-defined]
        order = pairs.once("coupling", (4, len(profile.power), RAYS)).argsort(-1)
        bearing = (pairs.once("bearing", ()).double() - 0.5) * math.radians(config.sector_deg)
        self.rays = cdl_rays(profile, order, bearing, hyper["delay_spread_s"][pairs.rows].double())
        frequency = group_frequencies(budget.bandwidth_hz[pairs.rows], config.subcarrier_groups)
        self.waves = PlaneWaves(self.rays, config.antennas, frequency, pairs, config.carrier_hz)
        self._velocity = None if config.speed_kmh is None else velocities(config.speed_kmh, pairs)
        self.correlation_rounds = rounds_apart(config)
        self._states = OfdmStates(config, budget, pairs, self._draw, self.waves.numbers)

    def state(self, round: int) -> ChannelState:
        return self._states.state(round, self._gain)

    def _draw(self, index: Tensor, time_s: Tensor) -> Tensor:
        """[R, U, K, A, F]."""
        if self._velocity is None:
            return self.waves.fresh(index)
        return self.waves.moved(time_s[:, :, None, None] * self._velocity)
