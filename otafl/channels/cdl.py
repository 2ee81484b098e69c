"""Clustered delay line of 3GPP, CDL-A to CDL-E, on an OFDM grid.

A cluster has 20 rays at the tabulated angles (eq. 7.7-0a, Sionna's tables), so that the server's
antennas are correlated and fading is frequency-selective. CDL-A and CDL-B have 23 clusters, CDL-C
has 24, none with a line of sight. CDL-D has 13 and CDL-E 14 clusters, and a line of sight with a
K-factor of 13.3 dB and 22 dB over the first cluster. The link is an uplink: the server's antennas
are a horizontal line with half a wavelength between them, a device has one antenna, and all are
vertical and omnidirectional.

Each device has a bearing, by which all its angles at the server are rotated (TR 38.901 7.7.5.1
shifts the mean angle likewise), and a random coupling of its rays' angles (step 8). Both are
constant during a run. Phases are random, also that of the line of sight, because its distance is
unknown.

References
----------
3GPP TR 38.901, "Study on channel model for frequencies from 0.5 to 100 GHz", 7.7.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.fading import keep_global_state
from otafl.channels.ofdm import OfdmChannel, Pairs, declare_delay_spread, group_frequencies
from otafl.channels.plane_waves import (
    RAY_OFFSETS,
    RAYS,
    GeometricSettings,
    PlaneWaves,
    Rays,
    draw_velocities,
    unit_vector,
)
from otafl.core.rng import declare_purpose
from otafl.core.units import db_to_linear

COUPLING = declare_purpose("coupling", __name__)
BEARING = declare_purpose("bearing", __name__)


@dataclass(frozen=True)
class CdlProfile:
    """Table of clusters of a CDL profile, with powers that sum to one.

    Parameters
    ----------
    power, delay : Tensor, float64 [C]
        Power of each cluster, and its delay at unit RMS delay spread.
    angles : Tensor, float64 [4, C]
        Azimuth and zenith at the server, azimuth and zenith at the device, in degrees.
    spread : Tensor, float64 [4]
        Cluster spread of each angle in degrees.
    los_power : float
        Power of the line of sight, 0 without one.
    los_angles : Tensor, float64 [4]
        Its angles in degrees.
    """

    power: Tensor
    delay: Tensor
    angles: Tensor
    spread: Tensor
    los_power: float
    los_angles: Tensor


def read_cdl_profile(letter: str) -> CdlProfile:
    """Read Sionna's table of CDL-A .. CDL-E, given the letter.

    The table is for a downlink, so its departure angles are at the server.
    """
    with keep_global_state():
        from sionna.phy.channel.tr38901 import models
    table: dict[str, Any] = models.load_json(models.parameter_file(f"CDL-{letter}.json"))
    power = db_to_linear(torch.tensor(table["powers"], dtype=torch.float64))
    power = power / power.sum()
    delay = torch.tensor(table["delays"], dtype=torch.float64)
    angles, spread = (
        torch.tensor([table[key] for key in keys], dtype=torch.float64)
        for keys in (("aod", "zod", "aoa", "zoa"), ("cASD", "cZSD", "cASA", "cZSA"))
    )
    first = 1 if table["los"] else 0  # the line of sight precedes the clusters
    return CdlProfile(
        power=power[first:],
        delay=delay[first:],
        angles=angles[:, first:],
        spread=spread,
        los_power=float(power[0]) if first else 0.0,
        los_angles=angles[:, 0],
    )


def build_cdl_rays(
    profile: CdlProfile, coupling: Tensor, bearing: Tensor, delay_spread_s: Tensor
) -> Rays:
    """Build the rays of U x K devices; the line of sight is the last path.

    Parameters
    ----------
    profile : CdlProfile
        Table of clusters.
    coupling : Tensor, int64 [U, K, 4, C, 20]
        Order of each angle's rays in a cluster.
    bearing : Tensor, float64 [U, K]
        Bearings in radians.
    delay_spread_s : Tensor, float64 [U]
        RMS delay spread in seconds.

    Returns
    -------
    Rays
        Powers, delays and angles of the rays.
    """
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


class Cdl(OfdmChannel):
    """CDL channel; h [S, K, A, B, F] is complex with E|h|^2 = 1."""

    class Settings(GeometricSettings):
        name: Literal["cdl-a", "cdl-b", "cdl-c", "cdl-d", "cdl-e"] = "cdl-a"
        delay_spread_s: float = declare_delay_spread()
        sector_deg: float = Field(120.0, ge=0, le=360)
        """sector in degrees, in which the devices' bearings from the server are uniform; 0: all
        devices have the angles of the profile"""

    settings: Settings

    def prepare(self) -> None:
        settings, bandwidth_hz = self.settings, self.budget.bandwidth_hz
        spread = self.hyper["delay_spread_s"]
        pairs = Pairs(self.streams, self.devices, bandwidth_hz, spread)
        profile = read_cdl_profile(settings.name[-1].upper())
        order = pairs.draw_static_uniform(COUPLING, (4, len(profile.power), RAYS)).argsort(-1)
        bearing = (pairs.draw_static_uniform(BEARING, ()).double() - 0.5) * math.radians(
            settings.sector_deg
        )
        self.rays = build_cdl_rays(profile, order, bearing, spread[pairs.rows].double())
        frequency = group_frequencies(bandwidth_hz[pairs.rows], settings.subcarrier_groups)
        self.waves = PlaneWaves(self.rays, settings.antennas, frequency, pairs, settings.carrier_hz)
        self._velocity = draw_velocities(settings.speed_kmh, pairs)
        waves = self.waves
        self.build_states(pairs, waves.rotation, waves.delay_s, waves.numbers)

    def draw_taps(self, index: Tensor, time_s: Tensor) -> Tensor:
        if self._velocity is None:
            return self.waves.draw_taps(index)
        return self.waves.compute_moved_taps(time_s[:, :, None, None] * self._velocity)
