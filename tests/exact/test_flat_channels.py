"""Flat channels against looped twins, closed forms and numerical integration.

Mutations that make a test here fail: blocks drawn from the stream of the rounds, the first of the
later blocks not h, a block's place in its batch ignored, antennas taken for devices in Sionna's
draw, sqrt(1 - r) for sqrt(1 - r^2), phases in double for whole numbers that wrap, no cos alpha in
the Doppler shift, km/h taken for m/s, J0's bound a fifth as far, a line of sight whose phase
changes with the round or has no Doppler shift, half the array's phase slope, K of the first trial
for all, the Laguerre function without its I1, one n too few or no exponential integral in the mean
inverse, cascade phases not conjugated, the weakest device or the sum without its gain, the blocked
share for its root, phases drawn for each device at a random surface.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import integrate, special, stats
from torch import Tensor

from otafl.channels import rice
from otafl.channels.awgn import Awgn
from otafl.channels.config import AwgnConfig, RayleighConfig, RicianConfig, RisConfig
from otafl.channels.correlation import correlated
from otafl.channels.fading import link_budget
from otafl.channels.jakes import (
    MOST_CORRELATED_ROUNDS,
    SINUSOIDS,
    correlation_rounds,
    doppler_hz,
)
from otafl.channels.rayleigh import Rayleigh
from otafl.channels.rician import Rician
from otafl.channels.ris import aligned, summed, weakest
from otafl.channels.sionna_rng import sionna_stream
from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams

FAR = 2**40


def channel(
    kind: str = "rayleigh",
    devices: int = 3,
    trials: Sequence[int] = (0,),
    dtype: torch.dtype = torch.float64,
    k_factor_db: Sequence[float] | None = None,
    **keys: Any,
) -> Rayleigh | Rician:
    streams = Streams([0] * len(trials), trials, dtype=dtype)
    config = (RayleighConfig if kind == "rayleigh" else RicianConfig)(**keys)
    budget = link_budget([config] * len(trials), devices, streams.device, dtype)
    if isinstance(config, RayleighConfig):
        return Rayleigh(config, budget, devices, streams)
    k_factor = torch.tensor(k_factor_db or [6.0] * len(trials), dtype=dtype)
    return Rician(config, budget, devices, streams, {"k_factor_db": k_factor})


def blocks(state: ChannelState, count: int) -> Tensor:
    """[S, K, A, count]."""
    assert state.later is not None
    return state.later(count)[..., 0]


KINDS = [
    pytest.param({}, id="independent"),
    pytest.param({"antennas": 4}, id="antennas"),
    pytest.param({"antennas": 3, "antenna_correlation": 0.7}, id="correlated"),
    pytest.param({"speed_kmh": 30.0, "antennas": 3, "antenna_correlation": 0.7}, id="moving"),
    pytest.param({"ris": {"elements": 5, "rule": "random"}}, id="surface"),
    pytest.param({"ris": {"elements": 5}, "antennas": 2, "speed_kmh": 3.0}, id="moving, surface"),
    pytest.param({"ris": {"elements": 5, "rule": "align_sum"}, "antennas": 2}, id="aligned sum"),
]


@pytest.mark.parametrize("keys", KINDS)
@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_block_is_a_function_of_round_and_block(
    kind: str, keys: dict[str, Any], dtype: torch.dtype
) -> None:
    """Whatever was asked for before and however many blocks there are; the first block is h. Bit
    for bit where nothing is summed over."""
    keys = {**keys, "block_symbols": 100}
    exact = "speed_kmh" not in keys and "ris" not in keys
    bounds = {"rtol": 0.0, "atol": 0.0 if exact else 1e-5 if dtype == torch.float32 else 1e-12}
    one, other = channel(kind, 2, (0, 1), dtype, **keys), channel(kind, 2, (0, 1), dtype, **keys)
    antennas, rounds = keys.get("antennas", 1), (0, 1, 7, 8, 63, 64, FAR - 1, FAR)
    expected = {t: blocks(one.state(t), 21) for t in rounds}
    for t in reversed(rounds):
        state = other.state(t)
        assert state.h.shape == (2, 2, antennas, 1, 1)
        assert state.h.dtype == dtype.to_complex()
        torch.testing.assert_close(state.h[..., 0], expected[t][..., :1], **bounds)
        for count in (3, 1, 8, 16, 2):
            assert blocks(state, count).shape == (2, 2, antennas, count)
            torch.testing.assert_close(blocks(state, count), expected[t][..., :count], **bounds)
        assert torch.equal(other.state(t).h, state.h)
    values = torch.view_as_real(torch.stack(list(expected.values()))).flatten(0, -2)
    assert len(torch.unique(values, dim=0)) == len(values)


@pytest.mark.parametrize("keys", [*KINDS[:4], KINDS[4]])
@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
def test_trials_and_devices_do_not_depend_on_each_other(kind: str, keys: dict[str, Any]) -> None:
    keys = {**keys, "block_symbols": 10}
    full = channel(kind, 40, (0, 1, 2), **keys, k_factor_db=[0.0, 3.0, 9.0])
    alone = channel(kind, 5, (1,), **keys, k_factor_db=[3.0])
    for t in (0, 9, FAR):
        whole, part = full.state(t), alone.state(t)
        torch.testing.assert_close(part.h[0], whole.h[1, :5], rtol=0.0, atol=1e-12)
        torch.testing.assert_close(
            blocks(part, 6)[0], blocks(whole, 6)[1, :5], rtol=0.0, atol=1e-12
        )


def test_without_blocks_the_channel_lasts() -> None:
    state = channel().state(0)
    assert state.block_symbols is None
    assert state.over(10**6) is state.h
    assert channel(block_symbols=50).state(0).over(151).shape == (1, 3, 1, 4, 1)


@pytest.mark.parametrize("antennas", [1, 3])
def test_draws_are_sionnas(antennas: int) -> None:
    """Devices 32 to 39 of the second batch, round by round, from Sionna's generator itself."""
    from sionna.phy.channel import RayleighBlockFading

    rounds = {1: 64, 3: 21}[antennas]
    streams = Streams([0], [4])
    (seed,) = streams.seeds("fading/1", 70 // rounds)
    sionna = RayleighBlockFading(1, antennas, 32, 1, precision="single", device="cpu")
    with sionna_stream(seed, streams.device):
        taps, _ = sionna(rounds, 1)
    one = channel(devices=40, trials=(4,), dtype=torch.float32, antennas=antennas)
    expected = taps[70 % rounds, 0, :, :8, 0, 0, 0].T
    assert torch.equal(one.state(70).h[0, 32:, :, 0, 0], expected)


@pytest.mark.parametrize("neighbours", [0.0, 0.3, 0.95])
def test_antennas_are_correlated_by_the_cholesky_factor(neighbours: float) -> None:
    """Of Sionna's exponential correlation matrix."""
    from sionna.phy.channel import exp_corr_mat

    matrix = exp_corr_mat(torch.tensor(neighbours), 6, precision="double", device="cpu")
    h = torch.randn(2, 6, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.cholesky(matrix) @ h
    torch.testing.assert_close(correlated(h, neighbours, 1), expected)
    torch.testing.assert_close(correlated(h.mT, neighbours, -1), expected.mT)


def test_doppler_shift_by_hand() -> None:
    """36 km/h are 10 m/s; at 2.99792458 GHz the wavelength is 0.1 m."""
    assert doppler_hz(36.0, 2.99792458e9) == pytest.approx(100.0, rel=1e-12)


MOVING: dict[str, Any] = {
    "speed_kmh": 20.0,
    "carrier_hz": 2.4e9,
    "round_interval_s": 0.7,
    "block_symbols": 500,
    "bandwidth_hz": 2e5,
}


def turned(hz: float, round: int, block: int) -> float:
    """2 pi f t, in exact arithmetic up to the turn: the frequencies are those of double numbers."""
    turns = Fraction(hz * 0.7) * round + Fraction(hz * (500 / 2e5)) * block
    return 2 * math.pi * float(turns % 1)


@pytest.mark.parametrize("round", [0, 1, 12345, FAR])
def test_moving_devices_are_a_sum_of_sinusoids(round: int) -> None:
    """The sum of Xiao, Zheng and Beaulieu, looped; antennas by their recursion."""
    streams = Streams([0, 0], [0, 1], dtype=torch.float64)
    pair = torch.arange(4)
    draw = streams.device_uniform("fading/scatterers", 0, pair // 2, pair % 2, (SINUSOIDS, 4))
    doppler = 20.0 / 3.6 * 2.4e9 / 299_792_458.0
    keys = {**MOVING, "antennas": 3, "antenna_correlation": 0.6}
    got = blocks(channel(devices=2, trials=(0, 1), **keys).state(round), 3)
    for cell, numbers in enumerate(draw.tolist()):
        for block in range(3):
            h = np.zeros(3, dtype=complex)
            for n, (turn, *phases) in enumerate(numbers):
                arrival = torch.tensor(2 * math.pi * (n + turn) / SINUSOIDS, dtype=torch.float64)
                angle = turned(doppler * arrival.cos().item(), round, block)
                h += np.exp(1j * (angle + 2 * np.pi * np.array(phases))) / math.sqrt(SINUSOIDS)
            for a in (1, 2):
                h[a] = 0.6 * h[a - 1] + 0.8 * h[a]
            bound = 1e-9 if round < FAR else 1e-2  # an ulp of cos alpha, 2^40 rounds later
            assert np.abs(got[cell // 2, cell % 2, :, block].numpy() - h).max() < bound


def test_devices_that_stand_still_keep_their_channel() -> None:
    one = channel(speed_kmh=0.0, antennas=2, block_symbols=10, dtype=torch.float32)
    h = one.state(0).h
    for round in (1, 1000, FAR):
        assert torch.equal(one.state(round).h, h)
        torch.testing.assert_close(blocks(one.state(round), 4), h[..., 0].expand(-1, -1, -1, 4))
    assert one.correlation_rounds == MOST_CORRELATED_ROUNDS
    assert 2**30 + 4096 * MOST_CORRELATED_ROUNDS < FAR


@pytest.mark.parametrize("phase", [1e-5, 0.01, 0.3, 5.0])
def test_rounds_apart_are_as_good_as_independent(phase: float) -> None:
    """|J0| < 0.1 from there on, and not within half of that."""
    rounds = correlation_rounds(phase / (2 * math.pi), 1.0)
    here = np.linspace(rounds, 3 * rounds, 20_000) * phase
    assert np.abs(special.j0(here)).max() < 0.1
    before = np.linspace(rounds / 2, rounds, 20_000) * phase
    assert np.abs(special.j0(before)).max() > 0.1
    assert channel().correlation_rounds == 1
    still = channel(speed_kmh=0.05, round_interval_s=1e-6).correlation_rounds
    assert still == MOST_CORRELATED_ROUNDS


def test_line_of_sight() -> None:
    """At K = 200 dB nothing else is left: of unit amplitude, over the array a steady phase pi sin
    angle, over rounds and blocks a steady device."""
    keys: dict[str, Any] = {
        "k_factor_db": [200.0, 200.0],
        "trials": (0, 1),
        "block_symbols": 100,
        "antennas": 4,
    }
    one = channel("rician", 50, **keys)
    line = blocks(one.state(0), 3)
    torch.testing.assert_close(line.abs(), torch.ones_like(line.abs()))
    for round in (1, FAR):
        torch.testing.assert_close(blocks(one.state(round), 3), line, rtol=0, atol=1e-9)
    torch.testing.assert_close(line, line[..., :1].expand_as(line), rtol=0, atol=1e-9)
    step = line[:, :, 1:, 0] / line[:, :, :-1, 0]
    torch.testing.assert_close(step, step[..., :1].expand_as(step), rtol=0, atol=1e-9)
    slope = step[..., 0].angle().flatten() / math.pi
    assert slope.abs().max() > 0.99
    assert len(torch.unique(line[:, :, 0, 0].angle())) == 100


def test_line_of_sight_of_moving_devices() -> None:
    """It turns by 2 pi f_D cos(heading) t, with one heading of a device for rounds and blocks."""
    one = channel("rician", 40, k_factor_db=[200.0], **MOVING)
    here, next_ = blocks(one.state(5), 4)[0, :, 0], blocks(one.state(6), 1)[0, :, 0]
    turn = (here[:, 1:] / here[:, :-1]).angle() / (2 * math.pi)
    torch.testing.assert_close(turn, turn[:, :1].expand_as(turn), rtol=0, atol=1e-9)
    hz = turn[:, 0] / (500 / 2e5)
    doppler = doppler_hz(20.0, 2.4e9)
    assert 0.9 * doppler < hz.abs().max() <= doppler
    per_round = torch.polar(torch.ones_like(hz), 2 * math.pi * (0.7 * hz) % (2 * math.pi))
    torch.testing.assert_close(next_[:, 0], here[:, 0] * per_round, rtol=0, atol=1e-6)


def test_k_factor_splits_the_power() -> None:
    """h is the line of sight and the Rayleigh channel of the same stream, by each trial's K."""
    k_factor_db = [-10.0, 0.0, 7.0]
    keys: dict[str, Any] = {"trials": (0, 0, 0), "antennas": 2, "antenna_correlation": 0.5}
    rician = channel("rician", k_factor_db=k_factor_db, **keys).state(4).h
    line = channel("rician", k_factor_db=[300.0] * 3, **keys).state(4).h
    scattered = channel("rayleigh", **keys).state(4).h
    k = 10 ** (torch.tensor(k_factor_db, dtype=torch.float64).view(3, 1, 1, 1, 1) / 10)
    expected = (k / (k + 1)).sqrt() * line + (1 / (k + 1)).sqrt() * scattered
    torch.testing.assert_close(rician, expected, rtol=0, atol=1e-12)


def test_mean_amplitude_of_rice() -> None:
    """By the law's mean in SciPy; Rayleigh's and 1 at the ends."""
    k_db = torch.tensor([-100.0, -3.0, 0.0, 6.0, 15.0, 80.0], dtype=torch.float64)
    k = 10 ** (k_db / 10)
    expected = [stats.rice.mean(math.sqrt(2 * x), scale=math.sqrt(0.5 / (x + 1))) for x in k[1:5]]
    expected = [math.sqrt(math.pi) / 2, *expected, 1.0]
    assert rice.mean_amplitude(k).tolist() == pytest.approx(expected, rel=1e-7)
    one = channel("rician", trials=(0, 1), k_factor_db=[0.0, 6.0])
    assert isinstance(one, Rician)
    torch.testing.assert_close(one.unit_mean_amplitude, rice.mean_amplitude(k[2:4])[:, None])


@pytest.mark.parametrize(
    ("line", "scattered", "threshold"),
    [(1.0, 0.3, 0.1), (1.0, 2.0, 0.5), (0.4, 1e-4, 0.1), (0.8, 0.2, 0.01), (1.0, 0.05, 1.1)],
)
def test_mean_inverse_of_rice(line: float, scattered: float, threshold: float) -> None:
    """By numerical integration over the non-central chi-square law."""
    law = stats.ncx2(2, 2 * line / scattered)
    expected, _ = integrate.quad(
        lambda g: law.pdf(2 * g / scattered) * 2 / scattered / g,
        threshold,
        (math.sqrt(line) + 14 * math.sqrt(scattered)) ** 2,
        points=[max(threshold, line)],
        limit=400,
    )
    assert rice.mean_inverse(line, scattered, threshold) == pytest.approx(expected, rel=1e-9)


def test_mean_inverse_of_rice_at_its_ends() -> None:
    """Without a line of sight E1, without scattering 1 / g, and no step where the one takes over
    from the other."""
    expected = special.exp1(0.1 / 0.7) / 0.7
    assert rice.mean_inverse(0.0, 0.7, 0.1) == pytest.approx(expected, rel=1e-12)
    assert rice.mean_inverse(0.5, 0.0, 0.1) == 2.0
    assert rice.mean_inverse(0.5, 0.0, 0.6) == 0.0
    assert rice.mean_inverse(1.0, 1.001e-7, 0.1) == pytest.approx(1.0, rel=3e-7)


def test_awgn_with_antennas() -> None:
    streams, config = Streams([0], [0]), AwgnConfig(antennas=3)
    one = Awgn(config, link_budget([config], 2, streams.device, streams.dtype), 2, streams)
    assert torch.equal(one.state(7).h, torch.ones(1, 2, 3, 1, 1, dtype=torch.complex64))
    assert not one.closed_form


def test_closed_forms_are_of_one_antenna_and_no_surface() -> None:
    for kind in ("rayleigh", "rician"):
        assert channel(kind).closed_form
        assert channel(kind, speed_kmh=3.0).closed_form
        assert not channel(kind, antennas=2).closed_form
        assert not channel(kind, ris=RisConfig(elements=2)).closed_form


def random_paths(devices: int, antennas: int, elements: int) -> tuple[Tensor, Tensor, Tensor]:
    """Direct [2, K, A, 3], surface to server [2, A, M], device to surface [2, K, M, 3]."""
    generator = torch.Generator().manual_seed(devices + antennas)
    sizes = (2, devices, antennas, 3), (2, antennas, elements), (2, devices, elements, 3)
    draws = [torch.randn(size, dtype=torch.complex128, generator=generator) for size in sizes]
    return draws[0], draws[1], draws[2]


def test_aligned_elements_of_one_antenna_add_up() -> None:
    """|y| = c |d| + sum_n |g_n| |r_n|, in phase with d."""
    direct, to_server, to_surface = random_paths(1, 1, 7)
    d, r = direct[:, 0], to_surface[:, 0]
    phasors = aligned(d, to_server, r, 0.6)
    torch.testing.assert_close(phasors.abs(), torch.ones_like(phasors.abs()))
    y = 0.6 * d + torch.einsum("sam,smb->sab", to_server, phasors * r)
    expected = 0.6 * d.abs()[:, 0] + torch.einsum("sm,smb->sb", to_server[:, 0].abs(), r.abs())
    torch.testing.assert_close(y[:, 0], expected * torch.sgn(d[:, 0]))


def test_aligned_elements_of_several_antennas() -> None:
    """No phase alone can be bettered by more than 1e-3 of |y|, on a grid of 64 phases, and no
    random phases come near."""
    direct, to_server, to_surface = random_paths(1, 4, 6)
    d, r = direct[:, 0], to_surface[:, 0]

    def norm(phasors: Tensor) -> Tensor:
        reflected = torch.einsum("sam,...smb->...sab", to_server, phasors * r)
        return (0.6 * d + reflected).abs().square().sum(-2).sqrt()

    phasors = aligned(d, to_server, r, 0.6)
    best = norm(phasors)
    grid = torch.polar(torch.ones(64), torch.arange(64) * (2 * math.pi / 64)).to(torch.complex128)
    for n in range(6):
        turned_ = phasors.expand(64, -1, -1, -1).clone()
        turned_[:, :, n] *= grid[:, None, None]
        assert (norm(turned_) <= best * 1.001).all()
    angles = torch.rand(2000, *phasors.shape, generator=torch.Generator().manual_seed(0)) * 7
    others = norm(torch.polar(torch.ones_like(angles), angles).to(torch.complex128))
    assert (others <= best).all()


def test_weakest_device_and_sum() -> None:
    """By hand, with the large-scale gain."""
    direct, _, to_surface = random_paths(3, 2, 4)
    gain = torch.tensor([[1.0, 0.01, 4.0], [0.25, 9.0, 1.0]], dtype=torch.float64)
    d, r = weakest(direct, to_surface, gain)
    power = (direct.abs() ** 2).sum(2) * gain[..., None]
    for s in range(2):
        for b in range(3):
            k = power[s, :, b].argmin()
            assert torch.equal(d[s, :, b], direct[s, k, :, b])
            assert torch.equal(r[s, :, b], to_surface[s, k, :, b])
    assert (power.argmin(1) != (direct.abs() ** 2).sum(2).argmin(1)).any()
    d, r = summed(direct, to_surface, gain)
    root = gain.sqrt()
    hand = sum(root[:, k, None, None] * direct[:, k] for k in range(3))
    torch.testing.assert_close(d, hand)
    hand = sum(root[:, k, None, None] * to_surface[:, k] for k in range(3))
    torch.testing.assert_close(r, hand)


@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
def test_surface_of_one_device(kind: str) -> None:
    """The direct path is that of the channel without a surface; aligned, the reflected one is in
    phase with it, and `blocked` takes its share of the power."""
    plain, first = channel(kind, 1, (0, 1), antennas=1), None
    for blocked in (0.0, 0.75, 1.0):
        keys: dict[str, Any] = {
            "ris": RisConfig(elements=16, blocked=blocked, rule="align_weakest")
        }
        h, d = channel(kind, 1, (0, 1), **keys).state(3).h, plain.state(3).h
        reflected = h - math.sqrt(1 - blocked) * d
        assert reflected.abs().min() > 0.5  # about 16 pi / 4 / 10
        first = reflected if first is None else first
        torch.testing.assert_close(reflected, first)
        torch.testing.assert_close(torch.sgn(reflected), torch.sgn(d))


def test_settings_that_cannot_be() -> None:
    for keys in (
        {"antennas": 0},
        {"antenna_correlation": 1.0},
        {"speed_kmh": -1.0},
        {"block_symbols": 0},
        {"ris": {"elements": 0}},
        {"ris": {"elements": 3, "blocked": 1.5}},
        {"ris": {"elements": 3, "rule": "best"}},
        {"ris": {}},
    ):
        with pytest.raises(ValidationError):
            RayleighConfig.model_validate(keys)
