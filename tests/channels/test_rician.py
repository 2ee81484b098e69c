"""The line of sight, alone and over scattered fading, and the law of both in closed form."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from scipy import integrate, special, stats
from support.made_channels import FAR, MOVING, make_channel, take_blocks

from otafl.channels.jakes import doppler_hz
from otafl.channels.rician import compute_mean_amplitude, compute_mean_inverse

pytestmark = pytest.mark.exact


rician = functools.partial(make_channel, "rician")


def test_line_of_sight() -> None:
    """At K = 200 dB nothing else is left: of unit amplitude, over the array a steady phase pi sin
    angle, over rounds and blocks a steady device."""
    keys: dict[str, Any] = {
        "k_factor_db": 200.0,
        "trials": (0, 1),
        "block_symbols": 100,
        "antennas": 4,
    }
    one = rician(50, **keys)
    line = take_blocks(one.get_state(0), 3)
    torch.testing.assert_close(line.abs(), torch.ones_like(line.abs()))
    for round in (1, FAR):
        torch.testing.assert_close(take_blocks(one.get_state(round), 3), line, rtol=0, atol=1e-9)
    torch.testing.assert_close(line, line[..., :1].expand_as(line), rtol=0, atol=1e-9)
    step = line[:, :, 1:, 0] / line[:, :, :-1, 0]
    torch.testing.assert_close(step, step[..., :1].expand_as(step), rtol=0, atol=1e-9)
    slope = step[..., 0].angle().flatten() / math.pi
    assert slope.abs().max() > 0.99
    assert len(torch.unique(line[:, :, 0, 0].angle())) == 100


def test_line_of_sight_of_moving_devices() -> None:
    """It turns by 2 pi f_D cos(heading) t, with one heading of a device for rounds and blocks."""
    one = rician(40, k_factor_db=200.0, **MOVING)
    here, next_ = (
        take_blocks(one.get_state(5), 4)[0, :, 0],
        take_blocks(one.get_state(6), 1)[0, :, 0],
    )
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
    h = rician(3, each=[{"k_factor_db": level} for level in k_factor_db], **keys).get_state(4).h
    line = rician(3, k_factor_db=300.0, **keys).get_state(4).h
    scattered = make_channel("rayleigh", 3, **keys).get_state(4).h
    k = 10 ** (torch.tensor(k_factor_db, dtype=torch.float64).view(3, 1, 1, 1, 1) / 10)
    expected = (k / (k + 1)).sqrt() * line + (1 / (k + 1)).sqrt() * scattered
    torch.testing.assert_close(h, expected, rtol=0, atol=1e-12)


def test_mean_amplitude_of_rice() -> None:
    """By the law's mean in SciPy; Rayleigh's and 1 at the ends."""
    k_db = torch.tensor([-100.0, -3.0, 0.0, 6.0, 15.0, 80.0], dtype=torch.float64)
    k = 10 ** (k_db / 10)
    expected = [stats.rice.mean(math.sqrt(2 * x), scale=math.sqrt(0.5 / (x + 1))) for x in k[1:5]]
    expected = [math.sqrt(math.pi) / 2, *expected, 1.0]
    assert compute_mean_amplitude(k).tolist() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("line", "scattered", "threshold"),
    [(1.0, 2.0, 0.5), (0.4, 1e-4, 0.1), (1.0, 0.05, 1.1)],
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
    assert compute_mean_inverse(line, scattered, threshold) == pytest.approx(expected, rel=1e-9)


def test_mean_inverse_of_rice_at_its_ends() -> None:
    """Without a line of sight E1, without scattering 1 / g, and no step where the one takes over
    from the other."""
    expected = special.exp1(0.1 / 0.7) / 0.7
    assert compute_mean_inverse(0.0, 0.7, 0.1) == pytest.approx(expected, rel=1e-12)
    assert compute_mean_inverse(0.5, 0.0, 0.1) == 2.0
    assert compute_mean_inverse(0.5, 0.0, 0.6) == 0.0
    assert compute_mean_inverse(1.0, 1.001e-7, 0.1) == pytest.approx(1.0, rel=3e-7)
