"""The jitter of local work by its laws, and what it costs. Seeds are fixed; each test of a law
states its sample size and the chance that a right sampler fails it under another seed.
"""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import engine, run, scenario
from support.rounding import SINGLE, assert_agree

from otafl.devices.hardware import CAUSES
from otafl.scenario.errors import ScenarioError


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
