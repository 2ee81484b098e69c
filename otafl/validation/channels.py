"""Laws of channels: mean power, distributions, correlation over time, frequency and antennas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl.channels.fading import keep_global_state
from otafl.core import registry
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, check_mean, state_law

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
