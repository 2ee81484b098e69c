"""Distributions of device speeds. Seeds are fixed; each test states its sample size and the chance
that a right sampler fails it under another seed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from otafl.clock import device_speeds
from otafl.clock_config import ClassesComputeConfig, LognormalComputeConfig, PhoneComputeConfig

SAMPLES = 20_000
FALSE_ALARM = 1e-3

LOGNORMAL = LognormalComputeConfig(median_flops_per_s=3e9, sigma=0.8)
PHONE = PhoneComputeConfig()
RANDOM = ClassesComputeConfig.model_validate(
    {
        "classes": [
            {"flops_per_s": 1e9, "share": 5},
            {"flops_per_s": 2e9, "share": 3},
            {"flops_per_s": 4e9, "share": 2},
        ],
        "assignment": "random",
    }
)
IN_ORDER = RANDOM.model_copy(update={"assignment": "in_order"})


def draw(config, devices: int, seed: int) -> np.ndarray:
    return device_speeds(config, devices, np.random.default_rng(seed)).flops_per_s


def test_lognormal_speeds():
    """KS, 20,000 samples, false alarm 1e-3; a sigma or median off by 5 % is beyond it."""
    logs = np.log(draw(LOGNORMAL, SAMPLES, 1))
    assert stats.kstest(logs, "norm", (np.log(3e9), 0.8)).pvalue > FALSE_ALARM
    assert stats.kstest(logs, "norm", (np.log(3e9), 0.8 * 1.05)).pvalue < FALSE_ALARM
    assert stats.kstest(logs, "norm", (np.log(3e9 * 1.05), 0.8)).pvalue < FALSE_ALARM


def test_zero_sigma_makes_all_devices_equal():
    config = LognormalComputeConfig(median_flops_per_s=3e9, sigma=0.0)
    np.testing.assert_allclose(draw(config, 5, 1), 3e9, rtol=1e-15)


def test_phone_speeds():
    """KS, 20,000 samples, false alarm 1e-3: 4 operations a cycle, 1 to 2 GHz."""
    assert stats.kstest(draw(PHONE, SAMPLES, 2) / 4e9, "uniform", (1, 1)).pvalue > FALSE_ALARM


def test_random_classes_come_with_their_shares():
    """Chi-square, 20,000 samples, false alarm 1e-3."""
    speeds = draw(RANDOM, SAMPLES, 3)
    counts = [(speeds == value).sum() for value in (1e9, 2e9, 4e9)]
    expected = SAMPLES * np.array([0.5, 0.3, 0.2])
    assert sum(counts) == SAMPLES
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("config", [LOGNORMAL, PHONE, RANDOM, IN_ORDER])
def test_the_first_devices_do_not_depend_on_how_many_there_are(config):
    assert np.array_equal(draw(config, 50, 4)[:10], draw(config, 10, 4))


@pytest.mark.parametrize("config", [LOGNORMAL, PHONE, RANDOM])
def test_speeds_follow_the_generator(config):
    assert np.array_equal(draw(config, 20, 5), draw(config, 20, 5))
    assert not np.array_equal(draw(config, 20, 5), draw(config, 20, 6))
