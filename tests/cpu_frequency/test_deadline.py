"""The highest clock, and the slowest that meets a deadline, against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract.small import scenario
from support.paces import make_policy, make_task

from otafl.scenario.errors import ScenarioError

pytestmark = pytest.mark.exact


def test_full_is_the_highest() -> None:
    pace = make_policy("full", 1, 3).choose_speed(make_task(1, 3, 4e9, 1.0))
    assert pace.frequency_hz.tolist() == [1e9] * 3
    assert pace.power is None


def test_deadline_by_hand() -> None:
    """4e8 operations are 1e8 cycles, and half a second is gone: in 1 s 2e8 Hz, in 0.2 s 5e8 Hz."""
    given = make_task(6, 1, 4e8, [1.0, 0.7, 0.55, 0.4, 9.0, np.inf])
    frequency = make_policy("deadline", 6, 1).choose_speed(given).frequency_hz
    expected = [2e8, 5e8, 1e9, 1e9, 1e8, 1e8]  # at most 1 GHz, also too late; at least 0.1
    np.testing.assert_allclose(frequency, expected, rtol=2e-9)


def test_deadline_is_met_in_spite_of_rounding() -> None:
    rng = np.random.default_rng(3)
    down = rng.uniform(0.0, 0.9, 5000)
    given = replace(
        make_task(1, 5000, 4e7, 1.0, downlink_s=down), flops=rng.uniform(4e7, 3.9e8, 5000)
    )
    frequency = make_policy("deadline", 1, 5000).choose_speed(given).frequency_hz
    can = given.flops / 4e9 <= 1.0 - down
    ready_s = down + given.flops / 4 / frequency
    assert (ready_s[can] <= 1.0).all()
    assert (ready_s[can & (frequency > 1e8)] > 1.0 - 1e-8).all()


def test_frequency_control_needs_a_deadline_and_more_than_one_frequency() -> None:
    classes = {"name": "classes", "classes": [{"flops_per_s": 1e9}, 2e9]}
    deadline = {"devices.cpu_frequency": "deadline", "devices.deadline_s": 1.0}
    with pytest.raises(ScenarioError, match=r"frequency: 'deadline' plans for devices\.deadline_s"):
        scenario({"devices.cpu_frequency": "deadline", "devices.compute": "edge_gpu"})
    for compute in ("phone", classes, {"name": "drawn"}):
        with pytest.raises(ScenarioError, match="frequency_min_share leaves each device one"):
            scenario(deadline | {"devices.compute": compute})
    slower = {"name": "classes", "classes": [{"flops_per_s": 1e9, "frequency_min_share": 0.5}, 2e9]}
    drawn = {"name": "drawn", "frequency_min_share": 0.2}
    for compute in ("edge_gpu", slower, drawn, {"frequency_min_share": 0.5}):
        scenario(deadline | {"devices.compute": compute})


def test_frequency_control_needs_a_protocol_with_a_deadline() -> None:
    text = "cpu_frequency: 'deadline' plans for a deadline, which protocol 'periodic' does not"
    keys = {"devices.cpu_frequency": "deadline", "devices.compute.frequency_min_share": 0.3}
    with pytest.raises(ScenarioError, match=text):
        scenario(keys | {"devices.protocol": "periodic"})
