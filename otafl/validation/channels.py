"""Laws of channels: mean power, distributions, correlation over time, frequency and antennas."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import special, stats

from otafl.channels.fading import keep_global_state
from otafl.channels.rician import Rician
from otafl.core import registry
from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench
from otafl.validation.checks import (
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_uncorrelated,
    state_law,
)

LIGHT_M_PER_S = 299_792_458.0
CARRIER_HZ = 3.5e9
SPEED_KMH = 30.0
INTERVAL_S = 1e-3
MOVING = {"speed_kmh": SPEED_KMH, "carrier_hz": CARRIER_HZ, "round_interval_s": INTERVAL_S}
FAR = 2**40
"""Round long after the first."""

LAGS = (1, 4, 9, 17)
"""Lags at which J0 is positive, negative, positive, and positive after two more zeros."""

BANDWIDTH_HZ = 20e6
GROUPS = 8
DELAY_SPREAD_S = 100e-9

JAKES = "Jakes, J0(2 pi f_D tau)"
TR_38901 = "3GPP TR 38.901"

SCATTERED = ("rayleigh", "rician", "tdl-a")
PROFILES = ("tdl-a", "tdl-c", "tdl-e")


def list_channels() -> list[str]:
    """List the registered channels that have no settings that must be given."""
    names = registry.list_names("channel")
    return [one for one in names if not registry.load_settings_class("channel", one).example]


def draw_fading(
    bench: Bench, devices: int, trials: int, rounds: int, name: str, **channel: Any
) -> np.ndarray:
    """Draw h [R, S, K, A, 1, F]."""
    point = {"channel": {"name": name} | channel, "power": "full"}
    return bench.build_rig(devices, trials, point).draw_fading(rounds)


@state_law("channel: mean power", "E|h|^2 = 1", "{}", list_channels)
def _power(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the mean power over a device's antennas, cells and rounds with 1, moving ones too.

    Devices and trials are independent. Channels that drop devices take long for many trials.
    """
    kind: Any = registry.load_settings_class("channel", name)
    trials = 8 if kind(name=name).is_physical else 128
    two = {"antennas": 2, "subcarrier_groups": 2}
    for case, keys in (("at rest", {}), ("moving, two antennas", MOVING | two)):
        own = {key: value for key, value in keys.items() if key in kind.model_fields}
        h = draw_fading(bench, 16, bench.scale_size(trials), 8, name, **own)
        yield check_mean(1.0, (np.abs(h) ** 2).mean((0, 3, 4, 5)), case, bias=1e-9)


INVERSES = [
    (threshold, gain, variance)
    for threshold, gain in ((0.1, 1.0), (0.5, 0.4), (0.01, 0.02))
    for variance in (1e-6, 0.01, 0.3, 2.0)
]
"""Threshold on the estimated power gain, gain, and variance of the estimate's error."""


@state_law(
    "channel awgn: mean inverse of estimates",
    "E[1 / |h_hat|^2; |h_hat|^2 >= g_th]",
    "g_th={0[0]:g}, gain {0[1]:g}, v={0[2]:g}",
    INVERSES,
)
def _mean_inverse(bench: Bench, case: tuple[float, float, float]) -> Iterator[Check]:
    """Compare the integral that policies plan with to a simulation of estimates."""
    threshold, gain, variance = case
    channel: Any = bench.build_rig(1, 1, {"channel": "awgn", "power": "full"}).link.channel
    z = np.random.default_rng(0).standard_normal((2, bench.scale_size(400_000)))
    power = gain * np.abs(1.0 + (z[0] + 1j * z[1]) * math.sqrt(variance / 2.0)) ** 2
    inverse = np.where(power >= threshold, 1.0 / power, 0.0)
    law = channel.compute_mean_inverse(threshold, gain, variance)
    yield check_mean(law, inverse, bias=1e-9)


@state_law("channel: antenna covariance", "E h_a h_b^* = r^|a - b|", "{}", SCATTERED)
def _antennas(bench: Bench, name: str) -> Iterator[Check]:
    """Compare every entry of E h h^H over the server's antennas with r^|a - b|.

    Fading is drawn anew in each round, or devices move. Devices and trials are independent. Rician
    fading has no line of sight here.
    """
    r, antennas = 0.7, 5
    trials = bench.scale_size(128 if name.startswith("tdl-") else 500)
    own: dict[str, Any] = {"rician": {"k_factor_db": -300.0}, "tdl-a": {"subcarrier_groups": 1}}
    for case, moving in (("at rest", {}), ("moving", MOVING)):
        section = {"antennas": antennas, "antenna_correlation": r} | own.get(name, {}) | moving
        h = draw_fading(bench, 32, trials, 1, name, **section)[0, ..., 0, 0]
        for a in range(antennas):
            for b in range(a + 1):
                product = h[..., a] * h[..., b].conj()
                where = f"{case}, antennas {a} and {b}"
                yield check_mean(r ** (a - b), product.real, where, bias=1e-9)
                if a > b:
                    yield check_mean(0.0, product.imag, f"{where}, imaginary")


@state_law("channel: autocorrelation", JAKES, "{}", SCATTERED)
def _jakes(bench: Bench, name: str) -> Iterator[Check]:
    """Compare rounds 1 ms apart at 30 km/h, at the start and far later."""
    trials = bench.scale_size(128 if name.startswith("tdl-") else 640)
    channel = {"name": name} | MOVING
    state = bench.build_rig(
        32, trials, {"channel": channel, "power": "full"}
    ).link.channel.get_state
    for start in (0, FAR):
        rounds = (state(start + lag).h[:, :, 0, 0, 0].cpu().numpy() for lag in (0, *LAGS))
        yield from correlations(np.stack(list(rounds)), "far later, " if start else "")


@state_law("channel: autocorrelation over blocks", f"{JAKES}; symbols / bandwidth", "{}", SCATTERED)
def _blocks(bench: Bench, name: str) -> Iterator[Check]:
    """Compare coherence blocks of a millisecond, which is 20,000 symbols at 20 MHz."""
    trials = bench.scale_size(64 if name.startswith("tdl-") else 640)
    symbols = round(BANDWIDTH_HZ * INTERVAL_S)
    channel = {"name": name, "bandwidth_hz": BANDWIDTH_HZ, "block_symbols": symbols}
    channel |= MOVING | {"round_interval_s": 1.0}
    rig = bench.build_rig(32, trials, {"channel": channel, "power": "full"})
    h = rig.draw_fading(1, (LAGS[-1] + 1) * symbols)[0, :, :, 0, :, 0]
    yield from correlations(np.moveaxis(h, -1, 0)[[0, *LAGS]])


def correlations(h: np.ndarray, when: str = "") -> Iterator[Check]:
    """Compare h [1 + lags, S, K] with the first of them.

    1 - E|h(t + tau) - h(t)|^2 / 2 is compared with J0. The imaginary part of the correlation, and E
    h(t + tau) h(t), are compared with 0. Devices and trials are independent.
    """
    for lag, later in zip(LAGS, h[1:], strict=True):
        case = f"{when}{lag} ms"
        yield check_mean(jakes(lag), 1.0 - np.abs(later - h[0]) ** 2 / 2.0, case)
        yield check_mean(0.0, (later * h[0].conj()).imag, f"{case}, imaginary")
        yield check_mean(0.0, (later * h[0]).real, f"{case}, without conjugate")
        yield check_mean(0.0, (later * h[0]).imag, f"{case}, without conjugate, imaginary")


def jakes(rounds: int) -> float:
    """Compute J0(2 pi f_D tau), the correlation of fading over a number of rounds."""
    return float(special.j0(2.0 * math.pi * doppler_turns(rounds)))


def doppler_turns(rounds: int) -> float:
    """Compute f_D tau of a number of rounds."""
    return SPEED_KMH / 3.6 * CARRIER_HZ / LIGHT_M_PER_S * INTERVAL_S * rounds


@state_law("channel: frequency covariance", f"{TR_38901}, 7.7.2; Sionna", "{}", PROFILES)
def _frequency(bench: Bench, name: str) -> Iterator[Check]:
    """Compare E h(f) h(g)^* of groups 1, 3 and 6 apart; devices and trials are independent."""
    law = compute_frequency_covariance(name[-1].upper(), GROUPS, DELAY_SPREAD_S)
    h = draw_fading(
        bench, 32, bench.scale_size(128), 4, name, bandwidth_hz=BANDWIDTH_HZ,
        subcarrier_groups=GROUPS, delay_spread_s=DELAY_SPREAD_S,
    )[..., 0, 0, :]  # fmt: skip
    for lag in (1, 3, 6):
        product = (h[..., lag:] * h[..., :-lag].conj()).mean((0, -1))
        yield check_mean(float(law[lag].real), product.real, f"{lag} apart, real")
        yield check_mean(float(law[lag].imag), product.imag, f"{lag} apart, imaginary")


def compute_frequency_covariance(profile: str, groups: int, delay_spread_s: float) -> np.ndarray:
    """Compute E h(f) h(g)^* of a TDL profile, complex [groups] by distance, with Sionna."""
    with keep_global_state():
        from sionna.phy.ofdm import tdl_freq_cov_mat

    spacing = BANDWIDTH_HZ / groups
    matrix = tdl_freq_cov_mat(profile, spacing, groups, delay_spread_s, precision="double")
    return np.asarray(matrix.cpu())[:, 0]


K_FACTORS_DB = (-5.0, 0.0, 4.0, 10.0)
MOTIONS: dict[str, dict[str, Any]] = {"at rest": {}, "moving": MOVING}


def _draw(bench: Bench, devices: int, trials: int, rounds: int, **channel: Any) -> np.ndarray:
    """Draw h [R, S, K, A, B] of a flat channel, with as many blocks as `blocks`."""
    blocks = channel.pop("blocks", 1)
    point = {"channel": channel, "power": "full"}
    rig = bench.build_rig(devices, trials, point, dtype=torch.float32)
    h = rig.draw_fading(rounds, blocks * (channel.get("block_symbols") or 1))
    return h[..., 0].astype(np.complex128)


def _phase(h: np.ndarray) -> np.ndarray:
    """Return the phase of each number as a share of the circle."""
    return np.asarray(np.angle(h) / (2.0 * np.pi) + 0.5)


def _independent(h: np.ndarray, axes: str) -> Iterator[Check]:
    """Check every pair along each axis of h; the other axes are draws."""
    for axis, name in enumerate(axes.split()):
        yield check_uncorrelated(np.moveaxis(h, axis, 0).reshape(h.shape[axis], -1), name)


@functools.lru_cache(maxsize=2)
def _rayleigh(bench: Bench) -> np.ndarray:
    """Draw h [R, S, K]."""
    return _draw(bench, 70, 10, bench.scale_size(200), name="rayleigh")[..., 0, 0]


@functools.lru_cache(maxsize=2)
def _rayleigh_blocks(bench: Bench) -> np.ndarray:
    """Draw h [R, S, K, A, B]."""
    keys = {"name": "rayleigh", "antennas": 3, "block_symbols": 10, "blocks": 7}
    return _draw(bench, 40, 5, bench.scale_size(40), **keys)


@state_law("channel rayleigh: gain", "|h|^2 is exponential")
def _rayleigh_gain(bench: Bench) -> Iterator[Check]:
    """Compare the distribution, the mean and the mean square of |h|^2."""
    gain = np.abs(_rayleigh(bench)) ** 2
    yield check_distribution(gain, stats.expon.cdf)
    yield check_mean(1.0, gain, "mean")
    yield check_mean(2.0, gain**2, "mean square")
    yield check_distribution(
        np.abs(_rayleigh_blocks(bench)) ** 2, stats.expon.cdf, "blocks and antennas"
    )


@state_law("channel rayleigh: phase", "uniform")
def _rayleigh_phase(bench: Bench) -> Iterator[Check]:
    """Compare the distributions of the phase, and of the real part, which is normal."""
    h = _rayleigh(bench)
    yield check_distribution(_phase(h), stats.uniform.cdf)
    yield check_distribution(h.real * math.sqrt(2.0), stats.norm.cdf, "real part")
    yield check_distribution(
        _phase(_rayleigh_blocks(bench)), stats.uniform.cdf, "blocks and antennas"
    )


@state_law("channel rayleigh: independence", "rounds, trials, devices, antennas, blocks")
def _independence(bench: Bench) -> Iterator[Check]:
    yield from _independent(_rayleigh(bench), "rounds trials devices")
    for one in _independent(_rayleigh_blocks(bench), "rounds trials devices antennas blocks"):
        yield Check(one.expected, one.measured, one.low, one.high, f"{one.case}, with blocks")


@state_law("channel rician: amplitude", "Rice's law of K", "K={:g} dB", K_FACTORS_DB)
def _rician(bench: Bench, k_db: float) -> Iterator[Check]:
    """Compare |h|, its mean and its mean square, and the phase, of a round.

    The line of sight has K/(K + 1) of the power, and the rest is scattered.
    """
    k = db_to_linear(k_db)
    law = stats.rice(math.sqrt(2.0 * k), scale=math.sqrt(0.5 / (k + 1.0)))
    for case, moving in MOTIONS.items():
        keys = {"name": "rician", "k_factor_db": k_db} | moving
        h = _draw(bench, 50, bench.scale_size(400), 1, **keys)
        yield check_distribution(np.abs(h), law.cdf, case)
        yield check_distribution(_phase(h), stats.uniform.cdf, f"{case}, phase")
        yield check_mean(1.0, np.abs(h) ** 2, f"{case}, mean square")
        yield check_mean(float(law.mean()), np.abs(h), f"{case}, mean")
    point = {"channel": {"name": "rician", "k_factor_db": k_db}, "power": "full"}
    channel = bench.build_rig(1, 1, point).link.channel
    assert isinstance(channel, Rician)
    yield check_exact(
        float(law.mean()), float(channel.unit_mean_amplitude), case="as policies know it"
    )


@state_law("channel rician: line of sight", "K/(K + 1) of the power, a device's own")
def _line_of_sight(bench: Bench) -> Iterator[Check]:
    """Compare the mean of each device over 400 rounds with its line of sight.

    Its power, less that of the remaining scattered part, is K/(K + 1). Its product with that of the
    next device has a mean of 0.
    """
    k, rounds = db_to_linear(3.0), 400
    h = _draw(bench, bench.scale_size(300), 1, rounds, name="rician", k_factor_db=3.0)[
        :, 0, :, 0, 0
    ]
    line = h.mean(0)
    yield check_mean(k / (k + 1.0), np.abs(line) ** 2 - h.var(0) / rounds, "power")
    yield check_mean(0.0, (line[:-1:2] * line[1::2].conj()).real, "devices")
    rest = np.abs(h - line) ** 2 * (k + 1.0) * rounds / (rounds - 1.0)
    yield check_distribution(rest, stats.expon.cdf, "scattered")
