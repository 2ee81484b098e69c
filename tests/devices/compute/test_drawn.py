"""Devices whose quantities are drawn, and their laws. Seeds are fixed; each test of a law states
its sample size and the chance that a right sampler fails it under another seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract.small import scenario
from support.made_devices import make_hardware

from otafl.devices.compute.drawn import DrawnCompute
from otafl.scenario.errors import ScenarioError


@pytest.mark.exact
def test_a_law_leaves_the_other_quantities_as_they_are() -> None:
    speed = {"uniform": [1e9, 2e9]}
    plain = DrawnCompute.model_validate({"flops_per_s": speed})
    more = DrawnCompute.model_validate(
        {"flops_per_s": speed, "charge": {"uniform": [0, 1]}, "harvest_w": {"choice": [1, 2]}}
    )
    assert np.array_equal(make_hardware(plain, 9).flops_per_s, make_hardware(more, 9).flops_per_s)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("key", "law", "message"),
    [
        ("battery_j", {"unifrm": [1, 2]}, "battery_j.unifrm: unknown key; did you mean 'uniform'"),
        ("battery_j", {}, r"battery_j: got the keys \(none\); must be one of uniform: \[a, b\]"),
        ("battery_j", {"uniform": [-1, 2]}, "battery_j: can be -1; .* must be above 0"),
        ("charge", {"uniform": [0.5, 2]}, "charge: can be 2; .* must be at most 1"),
        ("memory_mb", {"lognormal": {"median": 1}}, "memory_mb.lognormal.sigma: must be given"),
        ("power_db", {"choice": []}, r"power_db.choice: got \[\]; must be a list of at least 1"),
        ("harvest_w", "much", "harvest_w: got 'much'; must be a number"),
    ],
)
def test_laws_must_fit_their_quantity(key: str, law: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=r"devices\.compute\." + message):
        scenario({"devices.compute": {"name": "drawn", key: law}})
