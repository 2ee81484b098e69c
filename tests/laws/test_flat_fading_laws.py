"""Laws of flat fading over antennas, blocks and time, of the Rician channel and of the reflecting
surface. Seeds are fixed; every test's false-alarm level over all that it compares is 1e-4.

Mutations that make a test here fail: one stream for all blocks, or for the surface and the direct
path, the same phases at all antennas, angles of arrival over half a circle, 2 pi left out of the
Doppler shift, block_symbols without the bandwidth, sqrt(1 - r) for sqrt(1 - r^2), amplitudes for
powers in the K-factor, dB of amplitude, uniform slopes for uniform angles, one heading for all, one
phase of the line of sight for all, the reflected power not halved over real and imaginary part or
taken for an amplitude, the blocked share for its root.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

from otafl.channels.config import RayleighConfig, RicianConfig, RisConfig
from otafl.channels.fading import link_budget
from otafl.channels.rayleigh import Rayleigh
from otafl.channels.rician import Rician
from otafl.core.rng import Streams

LEVEL = 1e-4
FAR = 2**40
DOPPLER_HZ = 10.0
MOVING: dict[str, Any] = {"speed_kmh": DOPPLER_HZ * 3.6 * 299_792_458.0 / 3e9, "carrier_hz": 3e9}

Complex = np.ndarray[Any, np.dtype[np.complex128]]


def rayleigh(devices: int, trials: Sequence[int], **keys: Any) -> Rayleigh:
    streams, config = Streams([0] * len(trials), trials), RayleighConfig(**keys)
    budget = link_budget([config] * len(trials), devices, streams.device, streams.dtype)
    return Rayleigh(config, budget, devices, streams)


def rician(devices: int, k_factor_db: Sequence[float], **keys: Any) -> Rician:
    """Of one trial a K-factor."""
    streams = Streams([0] * len(k_factor_db), range(len(k_factor_db)))
    config = RicianConfig(**keys)
    budget = link_budget([config] * streams.size, devices, streams.device, streams.dtype)
    hyper = {"k_factor_db": torch.tensor(k_factor_db, dtype=streams.dtype)}
    return Rician(config, budget, devices, streams, hyper)


def h_of(channel: Rayleigh | Rician, rounds: Sequence[int], blocks: int = 1) -> Complex:
    """[rounds, S, K, A, B]."""
    states = [channel.state(round) for round in rounds]
    h = [state.h if state.later is None else state.later(blocks) for state in states]
    return torch.stack(h)[..., 0].numpy().astype(np.complex128)


def assert_mean(sample: np.ndarray, expected: float, tests: int = 1) -> None:
    """Of independent numbers, within their standard error."""
    bound = stats.norm.isf(LEVEL / 2 / tests) * sample.std() / math.sqrt(sample.size)
    assert abs(sample.mean() - expected) < bound


def assert_unit_normal(h: Complex, tests: int = 1) -> None:
    """|h|^2 exponential of mean 1 and the phase uniform, by KS; mean power 1."""
    g = np.abs(h.ravel()) ** 2
    assert stats.kstest(g, "expon").pvalue > LEVEL / 3 / tests
    angle = np.angle(h.ravel()) / (2 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").pvalue > LEVEL / 3 / tests
    assert_mean(g, 1.0, 3 * tests)


def assert_independent(h: Complex) -> None:
    """All pairs along each of the axes, others taken for draws: |sum h h'^* / n|^2 is exponential
    of mean 1 / n for large n; and the same for h h'."""
    for axis in range(h.ndim):
        rows = np.moveaxis(h, axis, 0).reshape(h.shape[axis], -1)
        n, upper = rows.shape[1], np.triu_indices(len(rows), 1)
        for other in (rows, rows.conj()):
            power = np.abs((rows @ other.T / n)[upper]) ** 2 * n
            assert power.max() < -np.log(LEVEL / 2 / h.ndim / power.size)


@functools.lru_cache(maxsize=1)
def block_draws() -> Complex:
    """[40 rounds, 5 trials, 40 devices, 3 antennas, 7 blocks]."""
    channel = rayleigh(40, range(5), antennas=3, block_symbols=10)
    return h_of(channel, range(40), 7)


def test_blocks_and_antennas_are_rayleigh() -> None:
    """168,000 draws."""
    assert_unit_normal(block_draws())


def test_blocks_and_antennas_are_independent() -> None:
    """Between rounds, trials, devices, antennas and blocks: pairs of at least 4,200 draws."""
    assert_independent(block_draws())


def test_a_round_has_blocks_of_its_own() -> None:
    """Block b of a round is no block of another round, whatever the place in its batch."""
    values = block_draws().transpose(0, 4, 1, 2, 3).reshape(40 * 7, -1)
    assert len(np.unique(values, axis=0)) == 280


def test_moving_devices_are_rayleigh_at_any_time() -> None:
    """20,000 devices of 20 trials at two times. A sum of 32 sinusoids is off by 0.0036 in the law
    of |h|^2, which KS sees from about 400,000 draws on at this level."""
    channel = rayleigh(1000, range(20), **MOVING)
    for round in (3, FAR):
        assert_unit_normal(h_of(channel, [round]), tests=2)


def test_moving_devices_are_independent() -> None:
    """Between trials, devices and antennas, and between rounds where J0 has decayed to 0.01."""
    channel = rayleigh(25, range(20), antennas=4, round_interval_s=201.3, **MOVING)
    assert channel.correlation_rounds == 1
    assert_independent(h_of(channel, range(40))[..., 0])


def assert_jakes(h: Complex, seconds: float) -> None:
    """h: [lags, n] with n independent devices: E h(0)^* h(t) = J0(2 pi f_D t), E h(0) h(t) = 0."""
    tests = 4 * (len(h) - 1)
    for lag in range(1, len(h)):
        product, plain = h[0].conj() * h[lag], h[0] * h[lag]
        expected = special.j0(2 * np.pi * DOPPLER_HZ * lag * seconds)
        assert_mean(product.real, expected, tests)
        for zero in (product.imag, plain.real, plain.imag):
            assert_mean(zero, 0.0, tests)


def test_jakes_autocorrelation_over_rounds() -> None:
    """20,000 devices, 24 rounds of 0.007 s: to f_D t = 1.7, from far away too."""
    channel = rayleigh(1000, range(20), round_interval_s=0.007, **MOVING)
    assert_jakes(h_of(channel, range(24)).reshape(24, -1), 0.007)
    assert_jakes(h_of(channel, range(FAR, FAR + 6)).reshape(6, -1), 0.007)


def test_jakes_autocorrelation_over_blocks() -> None:
    """20,000 devices, 24 blocks of 1,000 symbols at 200 kHz: to f_D t = 1.2."""
    channel = rayleigh(1000, range(20), block_symbols=1000, bandwidth_hz=2e5, **MOVING)
    h = h_of(channel, [5], 24)
    assert_jakes(h.reshape(-1, 24).T, 0.005)


def test_blocks_of_a_round_lead_to_the_next_round() -> None:
    """Block 10 of a round is the next round, where that is when it starts."""
    keys = {"block_symbols": 1000, "bandwidth_hz": 2e5, "round_interval_s": 0.05, **MOVING}
    for channel in (rayleigh(20, [0], **keys), rician(20, [3.0], **keys)):
        here, after = h_of(channel, [4], 11)[0], h_of(channel, [5])[0]
        assert np.abs(here[..., 10:] - after).max() < 1e-5
        assert np.abs(here[..., 0] - here[..., 10]).min() > 1e-3


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(lambda **keys: rayleigh(4000, range(4), **keys), id="rayleigh"),
        pytest.param(lambda **keys: rayleigh(4000, range(4), **MOVING, **keys), id="moving"),
        pytest.param(lambda **keys: rician(4000, [-300.0] * 4, **keys), id="rician, scattered"),
    ],
)
def test_covariance_over_antennas(channel: Callable[..., Rayleigh | Rician]) -> None:
    """E h_a h_b^* = 0.7^|a-b|, of 16,000 devices."""
    h = h_of(channel(antennas=5, antenna_correlation=0.7), [2]).reshape(-1, 5)
    pairs = list(itertools.combinations_with_replacement(range(5), 2))
    for a, b in pairs:
        product = h[:, a] * h[:, b].conj()
        assert_mean(product.real, 0.7 ** (b - a), 2 * len(pairs))
        if a != b:
            assert_mean(product.imag, 0.0, 2 * len(pairs))


@pytest.mark.parametrize("keys", [{}, MOVING], ids=["independent", "moving"])
def test_rician_amplitude(keys: dict[str, Any]) -> None:
    """5,000 devices of each K: |h| is Rice, by KS, E|h|^2 = 1, E|h| as in closed form, and the
    phase uniform."""
    k_factor_db = [-5.0, 0.0, 4.0, 10.0]
    channel = rician(5000, k_factor_db, **keys)
    h = h_of(channel, [6])[0, :, :, 0, 0]
    tests = 4 * len(k_factor_db)
    amplitudes = channel.unit_mean_amplitude.squeeze(1).tolist()
    for row, k_db, amplitude in zip(h, k_factor_db, amplitudes, strict=True):
        k = 10 ** (k_db / 10)
        law = stats.rice(math.sqrt(2 * k), scale=math.sqrt(0.5 / (k + 1)))
        assert stats.kstest(np.abs(row), law.cdf).pvalue > LEVEL / tests
        angle = np.angle(row) / (2 * np.pi) + 0.5
        assert stats.kstest(angle, "uniform").pvalue > LEVEL / tests
        assert_mean(np.abs(row) ** 2, 1.0, tests)
        assert_mean(np.abs(row), amplitude, tests)


def test_line_of_sight_is_a_devices_own() -> None:
    """A device's mean over 400 rounds is its line of sight: of power K/(K+1), and independent
    between devices."""
    h = h_of(rician(300, [3.0]), range(400))[:, 0, :, 0, 0]
    line, k = h.mean(0), 10**0.3
    power = np.abs(line) ** 2 - h.var(0) / 400  # without what the mean has left of the rest
    assert_mean(power, k / (k + 1), 3)
    assert_mean((line[::2] * line[1::2].conj()).real, 0.0, 3)
    scattered = (h - line).ravel() * math.sqrt((k + 1) * 400 / 399)
    assert stats.kstest(np.abs(scattered) ** 2, "expon").pvalue > LEVEL / 3


def test_uniform_angles_of_arrival_and_heading() -> None:
    """Arcsine laws of the array's phase step, pi sin angle, and of the Doppler shift, f_D cos
    angle; of angles that have nothing to do with each other."""
    channel = rician(
        5000, [200.0], antennas=2, block_symbols=1000, bandwidth_hz=1e5, **MOVING
    )  # f_D t = 0.1 a block
    h = h_of(channel, [0], 2)[0, 0]
    slope = np.angle(h[:, 1, 0] / h[:, 0, 0]) / np.pi
    shift = np.angle(h[:, 0, 1] / h[:, 0, 0]) / (2 * np.pi * 0.1)
    for value in (slope, shift):
        assert stats.kstest((1 + value) / 2, "arcsine").pvalue > LEVEL / 3
    assert_mean(np.exp(2j * np.pi * (np.arcsin(slope) - np.arccos(shift))).real, 0.0, 3)


@pytest.mark.parametrize("antennas", [1, 3])
def test_power_with_a_random_surface(antennas: int) -> None:
    """E|h|^2 = 1 - b + M r, the mean over 20 devices in each of 500 trials; M = 8, r = 0.1."""
    for blocked in (0.0, 0.6):
        ris = RisConfig(elements=8, reflected_db=-10.0, blocked=blocked, rule="random")
        h = h_of(rayleigh(20, range(500), antennas=antennas, ris=ris), [3])[0]
        assert_mean((np.abs(h) ** 2).mean((1, 2, 3)), 1 - blocked + 0.8, 2)


@pytest.mark.parametrize("keys", [{}, MOVING], ids=["independent", "moving"])
def test_the_surface_fades_apart_from_the_direct_path(keys: dict[str, Any]) -> None:
    """One element: E |d|^2 |r g|^2 = 1, the mean over 40 devices in each of 500 trials."""
    ris = RisConfig(elements=1, reflected_db=0.0, rule="random")
    d = h_of(rayleigh(40, range(500), **keys), [3])
    reflected = h_of(rayleigh(40, range(500), ris=ris, **keys), [3]) - d
    assert_mean((np.abs(d) ** 2 * np.abs(reflected) ** 2).mean((0, 2, 3, 4)), 1.0)


@pytest.mark.parametrize("rule", ["align_weakest", "align_sum"])
def test_gain_of_an_aligned_surface(rule: str) -> None:
    """One device, direct path blocked, 1,000 trials: E|h| = M (pi/4) sqrt(r) and E|h|^2 = r (M +
    M (M - 1) (pi/4)^2), so power grows as M^2."""
    r, mean = 0.01, np.pi / 4
    for elements in (4, 16, 64):
        ris = RisConfig(elements=elements, reflected_db=-20.0, blocked=1.0, rule=rule)
        h = np.abs(h_of(rayleigh(1, range(1000), ris=ris), [3])).ravel()
        assert_mean(h, elements * mean * math.sqrt(r), 6)
        assert_mean(h**2, r * (elements + elements * (elements - 1) * mean**2), 6)


def test_which_devices_a_surface_helps() -> None:
    """Ten devices, 300 trials, M = 32 of 0 dB: the weakest device gets M pi/4 on top of its direct
    path where it is aimed at, others the power M that random phases give; and the sum of the
    channels gets M pi/4 sqrt(10), more than with any other rule."""
    mean, plain = np.pi / 4, h_of(rayleigh(10, range(300)), [3])[0, :, :, 0, 0]
    h = {
        rule: h_of(
            rayleigh(10, range(300), ris=RisConfig(elements=32, reflected_db=0.0, rule=rule)), [3]
        )[0, :, :, 0, 0]
        for rule in ("random", "align_weakest", "align_sum")
    }
    at = np.abs(plain).argmin(1)
    trial = np.arange(300)
    gained = np.abs(h["align_weakest"][trial, at]) - np.abs(plain[trial, at])
    assert_mean(gained, 32 * mean, 3)
    others = np.abs(h["align_weakest"][trial, (at + 1) % 10] - plain[trial, (at + 1) % 10]) ** 2
    assert_mean(others, 32.0, 3)
    gained = np.abs(h["align_sum"].sum(1)) - np.abs(plain.sum(1))
    assert_mean(gained, 32 * mean * math.sqrt(10), 3)
    for rule in ("random", "align_weakest"):
        assert (np.abs(h["align_sum"].sum(1)) > np.abs(h[rule].sum(1))).all()


def test_the_global_generators_are_left_alone() -> None:
    state, plain_state = torch.get_rng_state(), random.getstate()
    numpy_state = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    ris = {"elements": 3, "rule": "random"}
    for keys in ({}, MOVING):
        h_of(rayleigh(3, [0], antennas=2, block_symbols=5, ris=ris, **keys), [0, 70], 5)
        h_of(rician(3, [1.0], antennas=2, block_symbols=5, ris=ris, **keys), [0, 70], 5)
    assert torch.equal(state, torch.get_rng_state())
    assert plain_state == random.getstate()
    assert (numpy_state == np.random.get_state()[1]).all()  # type: ignore[index]  # noqa: NPY002
