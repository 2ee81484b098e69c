"""The jitter of local work by its laws, and what it costs. Seeds are fixed; each test of a law
states its sample size and the chance that a right sampler fails it under another seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from scipy import stats

from otafl.core.rng import Streams
from otafl.devices.activities import CAUSES
from otafl.devices.compute.fixed import Fixed
from otafl.devices.jitter import Jitter
from otafl.scenario.errors import ScenarioError

SAMPLES = 20_000
FALSE_ALARM = 1e-3


def jitter(law: Any, scales: list[float]) -> Jitter:
    sections = [Fixed(jitter=law, jitter_scale=scale) for scale in scales]
    return Jitter(sections, Streams([7] * len(scales), list(range(len(scales)))))


PAIRS = torch.arange(2).repeat_interleave(SAMPLES), torch.arange(SAMPLES).repeat(2)


@pytest.mark.law
@pytest.mark.parametrize(
    ("law", "cdf"),
    [
        ("exponential", lambda s: stats.expon(1.0 - s, s).cdf),
        ("lognormal", lambda s: stats.lognorm(s, scale=np.exp(-(s**2) / 2)).cdf),
    ],
    ids=["exponential", "lognormal"],
)
def test_jitter_has_its_law_and_mean_one(law: str, cdf: Callable[[float], Any]) -> None:
    """KS of two trials of unlike scale, 20,000 devices each, false alarm 1e-3; means within 4
    standard errors, false alarm 6e-5."""
    factor = jitter(law, [0.8, 0.3]).draw_factor(*PAIRS, 3)
    assert factor.dtype == np.float64
    for own, scale in zip(np.split(factor, 2), (0.8, 0.3), strict=True):
        assert stats.kstest(own, cdf(scale)).pvalue > FALSE_ALARM
        assert abs(own.mean() - 1.0) < 4 * own.std() / SAMPLES**0.5


@pytest.mark.law
def test_jitter_is_drawn_anew_for_each_device_and_round_and_for_nobody_elses_sake() -> None:
    """Spearman's rank correlation of two rounds, 20,000 samples, false alarm 1e-3."""
    drawn = jitter("exponential", [0.5, 0.5])
    first, second = drawn.draw_factor(*PAIRS, 0), drawn.draw_factor(*PAIRS, 1)
    assert stats.spearmanr(first, second).pvalue > FALSE_ALARM
    assert len(np.unique(first[:1000])) > 990
    some = torch.tensor([3, SAMPLES + 5])
    assert np.array_equal(
        drawn.draw_factor(PAIRS[0][some], PAIRS[1][some], 1), second[some.numpy()]
    )


@pytest.mark.exact
def test_no_jitter_is_no_factor() -> None:
    pairs = torch.zeros(3, dtype=torch.int64), torch.arange(3)
    assert jitter("none", [0.5]).draw_factor(*pairs, 0) is None
    assert jitter("lognormal", [0.0]).draw_factor(*pairs, 0) is None
    still = jitter("exponential", [0.0, 0.5]).draw_factor(
        torch.tensor([0, 1]), torch.tensor([0, 0]), 0
    )
    assert still[0] == 1.0
    assert still[1] != 1.0


@pytest.mark.exact
def test_an_exponential_jitter_keeps_a_shift() -> None:
    with pytest.raises(
        ScenarioError, match=r"jitter_scale: got 1.5; must be at most 1 with jitter 'exp"
    ):
        scenario({"devices.compute": {"jitter": "exponential", "jitter_scale": 1.5}})


@pytest.mark.exact
def test_jitter_takes_time_and_no_joules_and_stacked_is_alone() -> None:
    keys = {
        "devices.compute": {
            "name": "drawn",
            "flops_per_s": {"lognormal": {"median": 1e9, "sigma": 0.5}},
            "sleep_w": {"uniform": [0.1, 0.2]},
            "jitter": "exponential",
        },
        "trials": 2,
        "sweep": {"devices.compute.jitter_scale": [0.0, 0.9]},
    }
    clock = run(engine(keys), 2).parts.clock
    still, shaken = clock.get_time_s()[:2], clock.get_time_s()[2:]
    assert (still != shaken).all()
    joules = clock.compute_spent_j()[..., CAUSES.index("compute")]
    np.testing.assert_allclose(joules[2:], joules[:2], rtol=1e-12)
    alone = run(engine(keys, trials=[1], chosen=[1]), 2).parts.clock
    assert alone.get_time_s()[0] == clock.get_time_s()[3]
    np.testing.assert_allclose(alone.compute_spent_j()[0], clock.compute_spent_j()[3], rtol=1e-9)
