"""The clocks of several trials."""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import scenario
from support.made_devices import make_mains_hardware
from support.rounding import assert_agree

from otafl.clock import build
from otafl.clock.event_clock import EventClock
from otafl.core.rng import Streams
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules

pytestmark = pytest.mark.exact


def cells(trials: int, devices: int) -> Hardware:
    return Hardware.stack([make_mains_hardware(devices)] * trials)


def test_trials_are_independent_and_equal_to_themselves_alone():
    rng = np.random.default_rng(3)
    seconds = rng.lognormal(size=(6, 4, 5))
    down, airtime = rng.random((2, 6, 4))
    deadline = [1.5, 0.7, np.inf, 1.0]

    def history(trials: list[int]) -> list[list]:
        rules = [Rules(deadline_s=deadline[s], late="next") for s in trials]
        clock, seen = (
            EventClock(cells(len(trials), 5), rules, [()] * len(trials)),
            [[] for _ in trials],
        )
        for r in range(6):
            free = clock.get_available()
            who = [row.nonzero()[0] for row in free]
            rows = down[r, trials][free.nonzero()[0]]
            own = seconds[r, trials][free]
            clock.begin(r, who, rows, own, np.ones_like(own), down[r, trials])
            slots, at_work = clock.open_slot(), clock.get_busy()
            clock.close_slot(airtime[r, trials])
            for entry, slot, rest, now in zip(
                seen, slots, at_work, clock.get_time_s(), strict=True
            ):
                entry.append((now, vars(slot), rest.nonzero()[0].tolist()))
        return seen

    together = history([0, 1, 2, 3])
    assert_agree(together, [history([s])[0] for s in range(4)])
    assert len({entry[-1][0] for entry in together}) == 4
    assert any(rest for _, _, rest in together[0])
    assert not any(rest for _, _, rest in together[2])


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
