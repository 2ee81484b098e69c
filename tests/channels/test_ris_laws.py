"""Laws of reflecting surfaces. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4.

Mutations that make a test here fail: one stream for the surface and the direct path, the reflected
power not halved over real and imaginary part or taken for an amplitude, the blocked share for its
root.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.fading_laws import MOVING, assert_mean, h_of, rayleigh

from otafl.channels.ris import RisSettings

pytestmark = pytest.mark.law


@pytest.mark.parametrize("antennas", [1, 3])
def test_power_with_a_random_surface(antennas: int) -> None:
    """E|h|^2 = 1 - b + M r, the mean over 20 devices in each of 500 trials; M = 8, r = 0.1."""
    for blocked in (0.0, 0.6):
        ris = RisSettings(elements=8, reflected_db=-10.0, blocked=blocked, rule="random")
        h = h_of(rayleigh(20, range(500), antennas=antennas, ris=ris), [3])[0]
        assert_mean((np.abs(h) ** 2).mean((1, 2, 3)), 1 - blocked + 0.8, 2)


@pytest.mark.parametrize("keys", [{}, MOVING], ids=["independent", "moving"])
def test_the_surface_fades_apart_from_the_direct_path(keys: dict[str, Any]) -> None:
    """One element: E |d|^2 |r g|^2 = 1, the mean over 40 devices in each of 500 trials."""
    ris = RisSettings(elements=1, reflected_db=0.0, rule="random")
    d = h_of(rayleigh(40, range(500), **keys), [3])
    reflected = h_of(rayleigh(40, range(500), ris=ris, **keys), [3]) - d
    assert_mean((np.abs(d) ** 2 * np.abs(reflected) ** 2).mean((0, 2, 3, 4)), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["align_weakest", "align_sum"])
def test_gain_of_an_aligned_surface(rule: str) -> None:
    """One device, direct path blocked, 1,000 trials: E|h| = M (pi/4) sqrt(r) and E|h|^2 = r (M +
    M (M - 1) (pi/4)^2), so power grows as M^2."""
    r, mean = 0.01, np.pi / 4
    for elements in (4, 16, 64):
        ris = RisSettings(elements=elements, reflected_db=-20.0, blocked=1.0, rule=rule)
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
            rayleigh(10, range(300), ris=RisSettings(elements=32, reflected_db=0.0, rule=rule)), [3]
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
