"""Laws of Rician fading. Seeds are fixed; every test's false-alarm level over all that it compares
is 1e-4.

Mutations that make a test here fail: amplitudes for powers in the K-factor, dB of amplitude,
uniform slopes for uniform angles, one heading for all, one phase of the line of sight for all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.fading_laws import LEVEL, MOVING, assert_mean, h_of, rician

pytestmark = pytest.mark.law


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
