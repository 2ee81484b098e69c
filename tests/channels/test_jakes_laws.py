"""Laws of moving devices. Seeds are fixed; every test's false-alarm level over all that it compares
is 1e-4.

Mutations that make a test here fail: the same phases at all antennas, angles of arrival over half a
circle, 2 pi left out of the Doppler shift, block_symbols without the bandwidth.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special
from support.fading_laws import (
    DOPPLER_HZ,
    MOVING,
    Complex,
    assert_independent,
    assert_mean,
    assert_unit_normal,
    h_of,
    rayleigh,
    rician,
)
from support.made_channels import FAR

pytestmark = pytest.mark.law


def test_moving_devices_are_rayleigh_at_any_time() -> None:
    """20,000 devices of 20 trials at two times. A sum of 32 sinusoids is off by 0.0036 in the law
    of |h|^2, which KS sees from about 400,000 draws on at this level."""
    channel = rayleigh(1000, range(20), **MOVING)
    for round in (3, FAR):
        assert_unit_normal(h_of(channel, [round]), tests=2)


@pytest.mark.slow
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


@pytest.mark.slow
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
