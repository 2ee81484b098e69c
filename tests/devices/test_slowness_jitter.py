"""The jitter of local work by its laws, and what it costs. Seeds are fixed; each test of a law
states its sample size and the chance that a right sampler fails it under another seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from support.rounding import SINGLE, assert_agree

from otafl.core.rng import Streams
from otafl.devices.compute.kinds import Fixed
from otafl.devices.hardware import CAUSES
from otafl.devices.slowness import Jitter, build_jitter
from otafl.scenario.errors import ScenarioError

SAMPLES = 20_000


def build(law: Any, scales: list[float]) -> Jitter | None:
    sections = [Fixed(jitter=law, jitter_scale=scale) for scale in scales]
    return build_jitter(sections, Streams([7] * len(scales), list(range(len(scales)))))


def jitter(law: Any, scales: list[float]) -> Jitter:
    made = build(law, scales)
    assert made is not None
    return made


PAIRS = torch.arange(2).repeat_interleave(SAMPLES), torch.arange(SAMPLES).repeat(2)


@pytest.mark.exact
def test_no_jitter_is_no_factor() -> None:
    assert build("none", [0.5]) is build("lognormal", [0.0]) is None
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
