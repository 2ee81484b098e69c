"""Laws of clustered delay lines: the angles of their rays at the server and at the device.

Antennas stand in a line, half a wavelength apart. Their correlation follows from the angles at the
server, and that over time from the angles at the moving device.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from otafl.channels.sionna_rng import keep_global_state
from otafl.core.units import db_to_linear
from otafl.laws.antennas import LAGS, compare_antennas, draw_array
from otafl.laws.bench import Bench
from otafl.laws.channels import (
    BANDWIDTH_HZ,
    DELAY_SPREAD_S,
    GROUPS,
    TR_38901,
    doppler_turns,
    draw_blocks,
    draw_fading,
)
from otafl.laws.checks import Check, Law, check_mean

RAY_OFFSETS = (0.0447, 0.1413, 0.2492, 0.3715, 0.5129, 0.6797, 0.8844, 1.1481, 1.5195, 2.1551)
"""Ray offset angles of 3GPP TR 38.901, table 7.5-3."""

PROFILES = ("c", "e")
"""Profiles without and with a line of sight, whose angles at both ends differ most."""

SECTOR_DEG = {"c": 0.0, "e": 120.0}
"""Sector of the bearings, by profile."""

BEARINGS, HEADINGS = 256, 64
"""Numbers of bearings and headings for the averages of the laws."""

CLUSTERS = f"{TR_38901}, 7.7.1"


def list_laws() -> Iterator[Law]:
    """List the laws of the clustered delay lines."""
    laws = [
        ("antennas", "E h_a h_b^* of the angles at the server", _clusters),
        ("frequency covariance", "delays of the clusters", _frequency),
        ("autocorrelation", "zeniths at the device", _autocorrelation),
        ("autocorrelation of power", "angles at the device", _power_correlation),
    ]
    for profile in PROFILES:
        for what, source, run in laws:
            checks = functools.partial(run, profile=profile)
            yield Law(f"channel cdl-{profile}: {what}", f"{CLUSTERS}; {source}", checks)


@dataclass(frozen=True)
class _Rays:
    """Rays of a profile, as its table has them.

    Parameters
    ----------
    power, delay_s : ndarray, float64 [C]
        Power and delay of the clusters.
    lone : ndarray, bool [C]
        Whether a cluster is the line of sight, which is one ray.
    server, device : tuple of ndarray, float64 [C, 20]
        Azimuths and zeniths in radians, which are coupled at random.
    """

    power: np.ndarray
    delay_s: np.ndarray
    lone: np.ndarray
    server: tuple[np.ndarray, np.ndarray]
    device: tuple[np.ndarray, np.ndarray]


@functools.lru_cache(maxsize=4)
def _rays(profile: str) -> _Rays:
    """Return the rays of a profile. Its table is that of a downlink: departure is at the server."""
    with keep_global_state():
        from sionna.phy.channel.tr38901 import models
    file = models.parameter_file(f"CDL-{profile.upper()}.json")
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    power = db_to_linear(np.array(table["powers"], dtype=float))
    offset = np.array([sign * one for one in RAY_OFFSETS for sign in (1.0, -1.0)])

    def angles(name: str, spread: str) -> np.ndarray:
        spreads = np.full((len(power), 1), float(table[spread]))
        if table["los"]:  # the first entry, a single ray
            spreads[0] = 0.0
        return np.deg2rad(np.array(table[name], dtype=float)[:, None] + spreads * offset)

    return _Rays(
        power=power / power.sum(),
        delay_s=np.array(table["delays"], dtype=float) * DELAY_SPREAD_S,
        lone=np.arange(len(power)) < table["los"],
        server=(angles("aod", "cASD"), angles("zod", "cZSD")),
        device=(angles("aoa", "cASA"), angles("zoa", "cZSA")),
    )


def _project_angles(angles: tuple[np.ndarray, np.ndarray], turn: np.ndarray) -> np.ndarray:
    """Compute sin(zenith) sin(azimuth - turn) of all pairs of a cluster's angles.

    The result is [turns, C, 20, 20].
    """
    azimuth, zenith = angles
    return np.sin(zenith)[:, None, :] * np.sin(azimuth[..., None] - turn[:, None, None, None])


def _clusters(bench: Bench, profile: str) -> Iterator[Check]:
    """Compare with the sum of P exp(j pi d sin(zenith) sin(azimuth)) over the rays.

    The sum is averaged over bearings in a sector.
    """
    sector_deg, rays = SECTOR_DEG[profile], _rays(profile)
    half = math.radians(sector_deg) / 2.0
    bearing = np.linspace(-half, half, 2 * BEARINGS + 1)[1::2]  # midpoints of equal intervals
    way = _project_angles(rays.server, bearing)

    def law(distance: int) -> complex:
        rotation = np.exp(1j * math.pi * distance * way).mean((0, 2, 3))
        return complex((rays.power * rotation).sum())

    yield from compare_antennas(draw_array(bench, f"cdl-{profile}", sector_deg=sector_deg), law)


def _frequency(bench: Bench, profile: str) -> Iterator[Check]:
    """Compare E h(f) h(g)^* with the sum of P exp(-2 pi j (f - g) tau) over the clusters."""
    rays = _rays(profile)
    h = draw_fading(
        bench, 32, bench.scale_size(64), 2, f"cdl-{profile}", bandwidth_hz=BANDWIDTH_HZ,
        subcarrier_groups=GROUPS, delay_spread_s=DELAY_SPREAD_S,
    )[..., 0, 0, :]  # fmt: skip
    for lag in (1, 3, 6):
        turns = lag * BANDWIDTH_HZ / GROUPS * rays.delay_s
        wanted = complex((rays.power * np.exp(-2j * math.pi * turns)).sum())
        product = (h[..., lag:] * h[..., :-lag].conj()).mean((0, -1))
        yield check_mean(wanted.real, product.real, f"{lag} apart, real")
        yield check_mean(wanted.imag, product.imag, f"{lag} apart, imaginary")


@functools.lru_cache(maxsize=4)
def _moving(bench: Bench, profile: str) -> np.ndarray:
    """Draw h [R, S, K, B] of devices that move in any direction."""
    count = LAGS[-1] + 1
    h = draw_blocks(
        bench, 32, bench.scale_size(32), 6, count, f"cdl-{profile}", subcarrier_groups=1
    )
    return h[:, :, :, 0, :, 0]


def _autocorrelation(bench: Bench, profile: str) -> Iterator[Check]:
    """Compare with the sum of P J0(2 pi f_D tau sin(zenith)) over the rays at the device."""
    h, rays = _moving(bench, profile), _rays(profile)
    for lag in LAGS:
        turn = 2.0 * math.pi * doppler_turns(lag) * np.sin(rays.device[1])
        law = float((rays.power * special.j0(turn).mean(-1)).sum())
        product = (h[..., lag:] * h[..., :-lag].conj()).mean((0, -1))
        yield check_mean(law, product.real, f"{lag} ms")


def _power_correlation(bench: Bench, profile: str) -> Iterator[Check]:
    """Compare E|h(t)|^2 |h(t + tau)|^2 with 1 + E|R|^2 - sum P^2 of a device's own R(tau).

    R is the sum of P exp(2 pi j v tau / lambda) over the rays. It depends on their azimuths, which
    its average over the headings of a device does not.
    """
    h, rays = np.abs(_moving(bench, profile)) ** 2, _rays(profile)
    heading = 2.0 * math.pi * np.arange(HEADINGS) / HEADINGS
    way = _project_angles(rays.device, heading)
    for lag in LAGS:
        law = 1.0 + _pairs(rays, np.exp(2j * math.pi * doppler_turns(lag) * way))
        yield check_mean(law, (h[..., lag:] * h[..., :-lag]).mean((0, -1)), f"{lag} ms")


def _pairs(rays: _Rays, turned: np.ndarray) -> float:
    """Compute the mean of sum P_m P_n e_m e_n^* over different rays m and n.

    e is `turned` [turns, C, 20, 20] at their angles. Rays of one cluster share neither angle.
    """
    count = turned.shape[2]
    middle = turned.mean((2, 3))
    apart = np.abs((rays.power * middle).sum(1)) ** 2
    apart -= (rays.power**2 * np.abs(middle) ** 2).sum(1)
    total = np.abs(turned.sum((2, 3))) ** 2 + (np.abs(turned) ** 2).sum((2, 3))
    total -= (np.abs(turned.sum(3)) ** 2).sum(2) + (np.abs(turned.sum(2)) ** 2).sum(2)
    together = rays.power**2 * total / (count**3 * (count - 1))
    return float((apart + together.sum(1, where=~rays.lone)).mean())
