"""Laws of angles: the correlation of antennas, and the correlation over time.

Antennas stand in a line, half a wavelength apart. Their correlation follows from the angles at the
server, and that over time from the angles at the moving device.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special

from otafl.channels.sionna_rng import keep_global_state
from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench
from otafl.laws.channels import (
    BANDWIDTH_HZ,
    DELAY_SPREAD_S,
    GROUPS,
    MOVING,
    TR_38901,
    doppler_turns,
    draw_blocks,
    draw_fading,
    jakes,
)
from otafl.laws.checks import Check, Law, check_mean, state_law
from otafl.laws.mutations import (
    Replacement,
    build_mutations,
    change_objects,
    change_result,
    replace_by,
    replace_by_value,
    scale_result,
)

RAY_OFFSETS = (0.0447, 0.1413, 0.2492, 0.3715, 0.5129, 0.6797, 0.8844, 1.1481, 1.5195, 2.1551)
"""Ray offset angles of 3GPP TR 38.901, table 7.5-3."""

ANTENNAS = 4
DISTANCES = (1, 2, 3)
"""Distances of the compared antennas."""

K_FACTOR_DB = 10.0

PROFILES = ("c", "e")
"""Profiles without and with a line of sight, whose angles at both ends differ most."""

SECTOR_DEG = {"c": 0.0, "e": 120.0}
"""Sector of the bearings, by profile."""

LAGS = (1, 3)
"""Lags in rounds of a millisecond."""

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


@state_law("channel rician: antennas", "E h_a h_b^* = J0(pi d) K / (K + 1)")
def _line(bench: Bench) -> Iterator[Check]:
    """Compare antennas d half wavelengths apart, for a line of sight from any direction."""
    h = _array(bench, "rician", k_factor_db=K_FACTOR_DB)
    k = db_to_linear(K_FACTOR_DB)
    yield from _antennas(h, lambda d: k / (k + 1.0) * special.j0(math.pi * d))


@state_law("channel tdl-d: antennas", f"{TR_38901}, 7.7.2; J0(pi d) of the line of sight")
def _check_taps(bench: Bench) -> Iterator[Check]:
    """Compare antennas with the share of the power in the line of sight."""
    part = _line_power()
    yield from _antennas(_array(bench, "tdl-d"), lambda d: part * special.j0(math.pi * d))


@state_law("channel tdl-d: autocorrelation", f"{TR_38901}, 7.7.2; line of sight at 0.7 f_D")
def _tapped_time(bench: Bench) -> Iterator[Check]:
    """Compare with P exp(2 pi j 0.7 f_D tau) of the line of sight and Jakes' J0 of the rest."""
    h = draw_fading(
        bench, 32, bench.scale_size(64), LAGS[-1] + 1, "tdl-d", subcarrier_groups=1, **MOVING
    )
    part = _line_power()
    for lag in LAGS:
        law = part * np.exp(1.4j * math.pi * doppler_turns(lag)) + (1.0 - part) * jakes(lag)
        product = (h[lag] * h[0].conj())[..., 0, 0, 0]
        yield check_mean(float(law.real), product.real, f"{lag} ms, real")
        yield check_mean(float(law.imag), product.imag, f"{lag} ms, imaginary")


def _line_power() -> float:
    """Return the share of TDL-D's power in the line of sight."""
    with keep_global_state():
        from sionna.phy.channel.tr38901 import TDL
    return float(TDL("D", 1.0, 3.5e9, precision="double", device="cpu").mean_power_los)


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

    yield from _antennas(_array(bench, f"cdl-{profile}", sector_deg=sector_deg), law)


def _array(bench: Bench, name: str, **channel: Any) -> np.ndarray:
    """Draw h [R, S, K, A] of a channel that is flat over the band."""
    if name != "rician":
        channel["subcarrier_groups"] = 1
    return draw_fading(bench, 32, bench.scale_size(64), 2, name, antennas=ANTENNAS, **channel)[
        ..., 0, 0
    ]


def _antennas(h: np.ndarray, law: Callable[[int], complex]) -> Iterator[Check]:
    """Compare E h_a h_b^* of antennas d apart; devices and trials are independent."""
    for distance in DISTANCES:
        product = (h[..., distance:] * h[..., :-distance].conj()).mean((0, -1))
        wanted = complex(law(distance))
        yield check_mean(wanted.real, product.real, f"distance {distance}, real")
        yield check_mean(wanted.imag, product.imag, f"distance {distance}, imaginary")


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


# Mutations


def _a_wavelength_apart(line: Any) -> None:
    start = line._start
    line._start = start * (start * start[:, :, :1].conj())


def _angles(*order: int) -> Replacement:
    """Reorder the angles of a profile: azimuth and zenith at the server, then at the device."""

    def change(profile: Any) -> Any:
        index = list(order)
        return dataclasses.replace(
            profile,
            angles=profile.angles[index],
            spread=profile.spread[index],
            los_angles=profile.los_angles[index],
        )

    return change_result("otafl.channels.cdl:read_cdl_profile", change)


def _blocks_twice_as_long(one: Any) -> None:
    name = "_per_block" if hasattr(one, "_per_block") else "_block_s"
    setattr(one, name, 2 * getattr(one, name))


def _no_coupling(real: Any) -> Any:
    """Couple the smallest azimuth with the smallest zenith of a cluster, and so on."""

    def rays(profile: Any, coupling: Any, bearing: Any, delay_spread_s: Any) -> Any:
        order = torch.arange(coupling.shape[-1]).expand_as(coupling)
        return real(profile, order, bearing, delay_spread_s)

    return rays


def _delays_twice(real: Any) -> Any:
    return lambda delay_s, frequency_hz, dtype: real(2.0 * delay_s, frequency_hz, dtype)


def _to_one_side(real: Any) -> Any:
    """Turn the bearings by a radian."""
    return lambda profile, coupling, bearing, delay_spread_s: real(
        profile, coupling, bearing + 1.0, delay_spread_s
    )


def _no_less_fresh(real: Any) -> Any:
    """Add fading of power 1 to the share of the neighbouring antenna, instead of 1 - r^2."""

    def correlate(h: Any, neighbours: float, dim: int) -> Any:
        out = list(h.movedim(dim, 0).unbind(0))
        for index in range(1, len(out)):
            out[index] = neighbours * out[index - 1] + out[index]
        return torch.stack(out, dim)

    return correlate


def _about_the_first(real: Any) -> Any:
    """Correlate antennas with the first one by their distance, and not with each other."""

    def correlate(h: Any, neighbours: float, dim: int) -> Any:
        first, *others = h.movedim(dim, 0).unbind(0)
        shares = [neighbours**distance for distance in range(1, len(others) + 1)]
        both = zip(shares, others, strict=True)
        return torch.stack([first, *(r * first + (1 - r**2) ** 0.5 * own for r, own in both)], dim)

    return correlate


MUTATIONS = (
    build_mutations(
        "channel rician: ",
        {
            "a wavelength apart (line of sight)": (
                {"angles", "antennas"},
                change_objects("otafl.channels.rician:LineOfSight", _a_wavelength_apart),
            ),
            "blocks twice as long (line of sight)": (
                {"angles", "autocorrelation over blocks"},
                change_objects("otafl.channels.jakes:Oscillators", _blocks_twice_as_long),
            ),
        },
    )
    + build_mutations(
        "channel tdl-d: ",
        {
            "a wavelength apart (tap)": (
                "antennas",
                scale_result("otafl.channels.tdl:line_array", 2.0),
            ),
            "line of sight at the whole Doppler": (
                "autocorrelation",
                replace_by_value("otafl.channels.tdl:LOS_COSINE", 1.0),
            ),
        },
    )
    + build_mutations(
        "channel cdl-c: ",
        {
            "a wavelength apart (rays)": (
                "antennas",
                scale_result("otafl.channels.plane_waves:line_array", 2.0),
            ),
            "antennas along x": (
                "antennas",
                replace_by(
                    "otafl.channels.plane_waves:line_array",
                    lambda real: (
                        lambda azimuth, zenith, count: real(azimuth + torch.pi / 2, zenith, count)
                    ),
                ),
            ),
            "the device's angles at the server": ("antennas", _angles(2, 3, 2, 3)),
            "delays twice": (
                "frequency covariance",
                replace_by("otafl.channels.plane_waves:delay_rotations", _delays_twice),
            ),
        },
    )
    + build_mutations(
        "channel cdl-e: ",
        {
            "a sector to one side": (
                "antennas",
                replace_by("otafl.channels.cdl:build_cdl_rays", _to_one_side),
            ),
        },
    )
    + build_mutations(
        "channel cdl-c: ",
        {
            "the server's angles at the device": (
                {"autocorrelation", "autocorrelation of power"},
                _angles(0, 1, 0, 1),
            ),
            "zenith for azimuth at the device": (
                {"autocorrelation", "autocorrelation of power"},
                _angles(0, 1, 3, 2),
            ),
        },
        quick=False,
    )
    + build_mutations(
        "channel rayleigh: ",
        {
            "antennas with too much power": (
                "antenna covariance",
                replace_by("otafl.channels.scattering:correlate_antennas", _no_less_fresh),
            ),
            "antennas correlated with the first (flat)": (
                "antenna covariance",
                replace_by("otafl.channels.scattering:correlate_antennas", _about_the_first),
            ),
            "antennas correlated with the first (moving)": (
                "antenna covariance",
                replace_by("otafl.channels.jakes:correlate_antennas", _about_the_first),
            ),
            "blocks twice as long (flat)": (
                "autocorrelation over blocks",
                change_objects("otafl.channels.jakes:Oscillators", _blocks_twice_as_long),
            ),
        },
    )
    + build_mutations(
        "channel tdl-a: ",
        {
            "antennas correlated with the first (taps)": (
                "antenna covariance",
                replace_by("otafl.channels.tdl:correlate_antennas", _about_the_first),
            ),
            "blocks twice as long (taps)": (
                "autocorrelation over blocks",
                change_objects("otafl.channels.ofdm:OfdmStates", _blocks_twice_as_long),
            ),
        },
    )
    + build_mutations(
        "channel cdl-e: ",
        {
            "blocks twice as long (rays)": (
                {"autocorrelation", "autocorrelation of power"},
                change_objects("otafl.channels.ofdm:OfdmStates", _blocks_twice_as_long),
            ),
        },
        quick=False,
    )
)
