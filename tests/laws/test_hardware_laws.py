"""Distributions of the devices' hardware and of the jitter of their work. Seeds are fixed; each
test states its sample size and the chance that a right sampler fails it under another seed.

Mutations that make a test here fail: another median, sigma or range; a share not normalised; normal
numbers clipped at the least in place of drawn again, or the mirror's tail; a choice that leaves out
its last value; two quantities from one draw; the jitter's shift or its mean off, one draw for all
devices or all rounds, one trial's scale for another's.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from otafl.core.rng import Streams
from otafl.devices.config_drawn import DrawnComputeConfig
from otafl.devices.config_hardware import (
    ClassesComputeConfig,
    FixedComputeConfig,
    LognormalComputeConfig,
)
from otafl.devices.config_presets import PhoneComputeConfig
from otafl.devices.hardware import Hardware, devices_of
from otafl.devices.jitter import Jitter

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
DRAWN = DrawnComputeConfig.model_validate(
    {
        "flops_per_s": {"lognormal": {"median": 3e9, "sigma": 0.8}},
        "battery_j": {"uniform": [100, 300]},
        "harvest_w": {"normal": {"mean": 2.0, "std": 1.5, "least": 1.0}},
        "memory_mb": {"choice": [1, 2, 2, 8]},
    }
)


def draw(config, devices: int, seed: int) -> Hardware:
    return devices_of(config, devices, np.random.default_rng(seed))


@pytest.mark.parametrize("config", [LOGNORMAL, DRAWN], ids=["lognormal", "drawn"])
def test_lognormal_speeds(config):
    """KS, 40,000 samples, false alarm 1e-3; a sigma or median off by 5 % is beyond it."""
    logs = np.log(draw(config, 2 * SAMPLES, 1).flops_per_s)
    assert stats.kstest(logs, "norm", (np.log(3e9), 0.8)).pvalue > FALSE_ALARM
    assert stats.kstest(logs, "norm", (np.log(3e9), 0.8 * 1.05)).pvalue < FALSE_ALARM
    assert stats.kstest(logs, "norm", (np.log(3e9 * 1.05), 0.8)).pvalue < FALSE_ALARM


def test_zero_sigma_makes_all_devices_equal():
    config = LognormalComputeConfig(median_flops_per_s=3e9, sigma=0.0)
    np.testing.assert_allclose(draw(config, 5, 1).flops_per_s, 3e9, rtol=1e-15)


def test_phone_speeds():
    """KS, 20,000 samples, false alarm 1e-3: 4 operations a cycle, 1 to 2 GHz."""
    speed = draw(PHONE, SAMPLES, 2).flops_per_s
    assert stats.kstest(speed / 4e9, "uniform", (1, 1)).pvalue > FALSE_ALARM


def test_random_classes_come_with_their_shares():
    """Chi-square, 20,000 samples, false alarm 1e-3."""
    speeds = draw(RANDOM, SAMPLES, 3).flops_per_s
    counts = [(speeds == value).sum() for value in (1e9, 2e9, 4e9)]
    expected = SAMPLES * np.array([0.5, 0.3, 0.2])
    assert sum(counts) == SAMPLES
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


def test_drawn_quantities_have_their_laws():
    """KS thrice and chi-square, 20,000 samples, false alarm 1e-3 each."""
    devices = draw(DRAWN, SAMPLES, 4)
    assert stats.kstest(devices.battery_j, "uniform", (100, 200)).pvalue > FALSE_ALARM
    least = (1.0 - 2.0) / 1.5
    law = stats.truncnorm(least, np.inf, 2.0, 1.5)
    assert devices.harvest_w.min() >= 1.0
    assert stats.kstest(devices.harvest_w, law.cdf).pvalue > FALSE_ALARM
    values, counts = np.unique(devices.memory_mb, return_counts=True)
    assert values.tolist() == [1, 2, 8]
    assert stats.chisquare(counts, SAMPLES * np.array([0.25, 0.5, 0.25])).pvalue > FALSE_ALARM


def test_drawn_quantities_are_independent():
    """Spearman's rank correlation of each pair, 20,000 samples, false alarm 1e-3 each."""
    devices = draw(DRAWN, SAMPLES, 5)
    columns = [devices.flops_per_s, devices.battery_j, devices.harvest_w]
    for one in range(3):
        for other in range(one):
            assert stats.spearmanr(columns[one], columns[other]).pvalue > FALSE_ALARM


CONFIGS = [LOGNORMAL, PHONE, RANDOM, IN_ORDER, DRAWN]
NAMES = ["lognormal", "phone", "random", "in_order", "drawn"]


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_the_first_devices_do_not_depend_on_how_many_there_are(config):
    many, few = draw(config, 50, 4), draw(config, 10, 4)
    assert np.array_equal(many.flops_per_s[:10], few.flops_per_s)
    assert np.array_equal(many.harvest_w[:10], few.harvest_w)


@pytest.mark.parametrize("config", [LOGNORMAL, PHONE, RANDOM, DRAWN], ids=[*NAMES[:3], "drawn"])
def test_speeds_follow_the_generator(config):
    speed = draw(config, 20, 5).flops_per_s
    assert np.array_equal(speed, draw(config, 20, 5).flops_per_s)
    assert not np.array_equal(speed, draw(config, 20, 6).flops_per_s)


def jitter(law: str, scales: list[float]) -> Jitter:
    configs = [FixedComputeConfig(jitter=law, jitter_scale=scale) for scale in scales]
    return Jitter(configs, Streams([7] * len(scales), list(range(len(scales)))))


PAIRS = torch.arange(2).repeat_interleave(SAMPLES), torch.arange(SAMPLES).repeat(2)


@pytest.mark.parametrize(
    ("law", "cdf"),
    [
        ("exponential", lambda s: stats.expon(1.0 - s, s).cdf),
        ("lognormal", lambda s: stats.lognorm(s, scale=np.exp(-(s**2) / 2)).cdf),
    ],
    ids=["exponential", "lognormal"],
)
def test_jitter_has_its_law_and_mean_one(law, cdf):
    """KS of two trials of unlike scale, 20,000 devices each, false alarm 1e-3; means within 4
    standard errors, false alarm 6e-5."""
    factor = jitter(law, [0.8, 0.3]).factor(*PAIRS, 3)
    assert factor.dtype == np.float64
    for own, scale in zip(np.split(factor, 2), (0.8, 0.3), strict=True):
        assert stats.kstest(own, cdf(scale)).pvalue > FALSE_ALARM
        assert abs(own.mean() - 1.0) < 4 * own.std() / SAMPLES**0.5


def test_jitter_is_drawn_anew_for_each_device_and_round_and_for_nobody_elses_sake():
    """Spearman's rank correlation of two rounds, 20,000 samples, false alarm 1e-3."""
    drawn = jitter("exponential", [0.5, 0.5])
    first, second = drawn.factor(*PAIRS, 0), drawn.factor(*PAIRS, 1)
    assert stats.spearmanr(first, second).pvalue > FALSE_ALARM
    assert len(np.unique(first[:1000])) > 990
    some = torch.tensor([3, SAMPLES + 5])
    assert np.array_equal(drawn.factor(PAIRS[0][some], PAIRS[1][some], 1), second[some.numpy()])


def test_no_jitter_is_no_factor():
    pairs = torch.zeros(3, dtype=torch.int64), torch.arange(3)
    assert jitter("none", [0.5]).factor(*pairs, 0) is None
    assert jitter("lognormal", [0.0]).factor(*pairs, 0) is None
    still = jitter("exponential", [0.0, 0.5]).factor(torch.tensor([0, 1]), torch.tensor([0, 0]), 0)
    assert still[0] == 1.0
    assert still[1] != 1.0
