"""Devices whose quantities are drawn, and their laws. Seeds are fixed; each test of a law states
its sample size and the chance that a right sampler fails it under another seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract.small import scenario
from support.made_devices import make_hardware
from support.rounding import assert_agree

from otafl.devices.compute.drawn import DrawnCompute
from otafl.scenario.errors import ScenarioError

DRAWN = DrawnCompute.model_validate(
    {
        "flops_per_s": {"lognormal": {"median": 3e9, "sigma": 0.8}},
        "battery_j": {"uniform": [100, 300]},
        "harvest_w": {"normal": {"mean": 2.0, "std": 1.5, "least": 1.0}},
        "memory_mb": {"choice": [1, 2, 2, 8]},
    }
)


@pytest.mark.exact
def test_numbers_stay_numbers_among_drawn_quantities() -> None:
    config = DrawnCompute.model_validate({"flops_per_s": {"choice": [2e9]}, "kappa": 3e-28})
    devices = make_hardware(config, 3)
    assert devices.flops_per_s.tolist() == [2e9] * 3
    assert devices.kappa.tolist() == [3e-28] * 3
    assert devices.battery_j.tolist() == [np.inf] * 3


@pytest.mark.exact
def test_a_law_leaves_the_other_quantities_as_they_are() -> None:
    speed = {"uniform": [1e9, 2e9]}
    plain = DrawnCompute.model_validate({"flops_per_s": speed})
    more = DrawnCompute.model_validate(
        {"flops_per_s": speed, "charge": {"uniform": [0, 1]}, "kappa": {"choice": [1, 2]}}
    )
    assert np.array_equal(make_hardware(plain, 9).flops_per_s, make_hardware(more, 9).flops_per_s)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("key", "law", "message"),
    [
        ("battery_j", {"unifrm": [1, 2]}, "battery_j: got the keys unifrm; must be one of"),
        ("battery_j", {"uniform": [-1, 2]}, "battery_j: can be -1; .* must be above 0"),
        ("efficiency", {"uniform": [0.5, 2]}, "efficiency: can be 2; .* must be at most 1"),
        (
            "charge",
            {"lognormal": {"median": 0.1, "sigma": 1}},
            "charge: can be inf; .* must be at most 1",
        ),
        ("kappa", {"lognormal": {"median": 1}}, "kappa: lognormal: must be a mapping of median"),
        ("kappa", {"choice": []}, r"kappa.choice: got \[\]; must be a list of at least 1"),
        (
            "harvest_w",
            {"normal": {"mean": 1, "std": 1, "least": 2}},
            r"harvest_w.normal: least: got 2; must not exceed the mean \(1\)",
        ),
        ("idle_w", "much", "idle_w: got 'much'; must be a number"),
        ("idle_w", -1, "idle_w: can be -1; all possible values must be at least 0"),
    ],
    ids=["name", "negative", "above", "tail", "keys", "none", "least", "text", "number"],
)
def test_laws_must_fit_their_quantity(key: str, law: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=r"devices\.compute\." + message):
        scenario({"devices.compute": {"name": "drawn", key: law}})


@pytest.mark.exact
def test_the_first_devices_do_not_depend_on_how_many_there_are() -> None:
    many, few = make_hardware(DRAWN, 50, seed=4), make_hardware(DRAWN, 10, seed=4)
    assert_agree(many.flops_per_s[:10], few.flops_per_s)
    assert_agree(many.harvest_w[:10], few.harvest_w)
    assert not np.array_equal(many.flops_per_s, make_hardware(DRAWN, 50, seed=6).flops_per_s)
