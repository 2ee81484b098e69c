"""The clocks of several trials."""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import scenario
from support.made_devices import make_mains_hardware

from otafl.clock import build
from otafl.clock.event_clock import EventClock
from otafl.core.rng import Streams
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules

pytestmark = pytest.mark.exact


def cells(trials: int, devices: int) -> Hardware:
    return Hardware.stack([make_mains_hardware(devices)] * trials)


def test_a_clock_is_made_of_the_sections_of_its_trials() -> None:
    """Each trial has its own deadline, and lives of its own."""
    markov = {"name": "markov", "mean_on_s": 1.0, "mean_off_s": 1.0}
    sections = [
        scenario({"devices.deadline_s": at, "devices.availability": markov}).devices
        for at in (2.0, None)
    ]
    made = build(sections, cells(2, 4), Streams([3, 3], [0, 1]), log=True)
    assert isinstance(made, EventClock)
    assert [one.rules for one in made.trials] == [Rules(deadline_s=2.0), Rules()]
    for trial, seed in enumerate((0, 1)):
        alone = build(sections[trial:][:1], cells(1, 4), Streams([3], [seed]), log=False)
        np.testing.assert_array_equal(alone.get_available()[0], made.get_available()[trial])
        assert alone.build_timeline() is None
    assert made.build_timeline() is not None
