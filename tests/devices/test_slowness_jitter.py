"""The jitter of local work by its laws, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from support.rounding import SINGLE, assert_agree

from otafl.core.rng import Streams
from otafl.devices.compute.kinds import Fixed
from otafl.devices.hardware import CAUSES
from otafl.devices.slowness import Jitter
from otafl.scenario.errors import ScenarioError


@pytest.mark.parametrize(
    ("law", "variance"), [("exponential", 0.25), ("lognormal", math.expm1(0.25))]
)
def test_factors_have_a_mean_of_one(law: Any, variance: float) -> None:
    """Of 20,000 devices; a right sampler is 5 deviations off under one of a million seeds."""
    device = torch.arange(20_000)
    jitter = Jitter([Fixed(jitter=law, jitter_scale=0.5)], Streams([7], [0]))
    factor = jitter.draw_factor(torch.zeros_like(device), device, 0)
    assert abs(factor.mean() - 1.0) < 5.0 * math.sqrt(variance / len(device))
    assert factor.var() == pytest.approx(variance, rel=0.1)


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
            "harvest_w": {"uniform": [0.1, 0.2]},
            "sleep_w": 0.1,
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
    assert_agree(alone.get_time_s(), clock.get_time_s()[3:], tolerance=SINGLE)
    assert_agree(alone.compute_spent_j()[0], clock.compute_spent_j()[3], tolerance=SINGLE)
