"""Devices that are asked whether they are there, against a process for each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from contract.small import engine
from support.made_devices import make_mains_hardware
from support.rounding import assert_agree

from otafl.clock import presence
from otafl.clock.presence import Course, Presence
from otafl.clock.trial_clock import TrialClock
from otafl.devices.protocols import Rules
from otafl.evaluation.recorder import Recorder

pytestmark = pytest.mark.exact

DEVICES = 20


class Drawn(Sequence[Any]):
    """Lives that can be begun again: a fifth never leaves, a fifth ends some day."""

    def __init__(self, seed: int, mean_s: float, devices: int = DEVICES) -> None:
        self._seed, self._mean_s, self._devices = seed, mean_s, devices

    def __len__(self) -> int:
        return self._devices

    def __getitem__(self, device: Any) -> Iterator[tuple[float, bool]] | None:
        if device >= self._devices:
            raise IndexError(device)
        return None if device % 5 == 4 else self._yield_life(device)

    def _yield_life(self, device: int) -> Iterator[tuple[float, bool]]:
        draw = np.random.default_rng([self._seed, device])
        at_s, there = 0.0, bool(draw.random() < 0.5)
        if not there:
            yield at_s, False
        for _ in range(9 if device % 5 == 3 else 10**6):
            at_s += draw.exponential(self._mean_s)
            there = not there
            yield at_s, there


def test_a_course_by_hand() -> None:
    course = Course(iter([(0.0, False), (2.0, True), (5.0, False)]))
    assert (course.there, course.next_s) == (True, 0.0)
    course.advance(0.0)
    assert (course.there, course.next_s) == (False, 2.0)
    course.advance(4.0)
    assert (course.there, course.next_s) == (True, 5.0)
    course.advance(5.0)
    assert (course.there, course.next_s) == (False, math.inf)
    assert Course(None).there


def test_the_next_return_by_hand() -> None:
    """One that is away until 7 s, one that leaves at 3 s until 9 s, and one that never leaves."""
    away, leaving = iter([(0.0, False), (7.0, True)]), iter([(3.0, False), (9.0, True)])
    lives = Presence([away, leaving, None])
    assert [lives.find_next_return_s(now) for now in (1.0, 4.0, 8.0, 9.0)] == [7, 7, 9, math.inf]


def test_lives_that_were_forgotten_are_gone_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = Drawn(0, 3.0)
    whole, few = Presence(lives), Presence(lives)
    monkeypatch.setattr(presence, "KEPT", 3)
    for now_s in np.linspace(0.0, 60.0, 40).tolist():
        for device in range(DEVICES):
            one, other = few.get_course(device, now_s), whole.get_course(device, now_s)
            assert_agree((one.there, one.next_s), (other.there, other.next_s))
            assert len(few._known) <= 3


RULES = [
    Rules(),
    Rules(deadline_s=2.0),
    Rules(deadline_s=2.0, late="next"),
    Rules(1, max_ready=2, late="next", broadcast_first=False),
    Rules(0, 1.5, late="next", broadcast_first=False),
]


@pytest.mark.parametrize("seed", range(len(RULES)))
def test_a_trial_is_one_of_processes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there, which updates are lost, and when what happens."""
    followed = TrialClock(make_mains_hardware(DEVICES), RULES[seed], Drawn(seed, 2.0))
    monkeypatch.setattr(presence, "MANY", 0)
    asked = TrialClock(make_mains_hardware(DEVICES), RULES[seed], Drawn(seed, 2.0))
    assert asked.must_ask
    assert not followed.must_ask
    rng, clocks = np.random.default_rng(seed), (followed, asked)
    for round in range(40):
        assert {clock.wait_for_devices() for clock in clocks} == {True}
        free, other = (clock.get_available().nonzero()[0].tolist() for clock in clocks)
        assert free == other
        order = rng.permutation(DEVICES).tolist()
        chosen = asked.select_first_available(order, 4)
        assert chosen == [device for device in order if device in free][:4]
        who = sorted(chosen)
        down, seconds, watts = rng.exponential(1.0, (3, len(who))).tolist()
        airtime_s = rng.random()
        for clock in clocks:
            clock.start(round, who, down, seconds, watts)
        assert_agree(vars(followed.admit()), vars(asked.admit()))
        for clock in clocks:
            clock.transmit(airtime_s, [0.5] * DEVICES)
        assert_agree(followed.get_time_s(), asked.get_time_s())
        assert followed.get_busy() == asked.get_busy()
        assert (followed.started, followed.lost) == (asked.started, asked.lost)
        assert_agree(followed.compute_spent_j(), asked.compute_spent_j())
    assert asked.lost > 0
    assert math.isnan(asked.count_present())


@pytest.mark.parametrize(
    ("selection", "keys"),
    [
        ("uniform", {"devices.deadline_s": 0.002, "devices.late": "next"}),
        ("round_robin", {"devices.deadline_s": 0.003}),
    ],
)
def test_a_run_is_one_of_processes(
    selection: str, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys | {
        "devices.count": 40,
        "devices.participants": 5,
        "devices.selection": selection,
        "devices.availability": {"name": "markov", "mean_on_s": 0.02, "mean_off_s": 0.03},
        "devices.compute": {"name": "fixed", "flops_per_s": 1e7, "jitter": "exponential"},
    }
    followed = record(keys)
    monkeypatch.setattr(presence, "MANY", 0)
    asked = record(keys)
    assert np.isnan(asked.pop("present")).all()
    assert np.isfinite(followed.pop("present")).all()
    for name, value in followed.items():
        assert_agree(asked[name], value, name)
    assert followed["updates_lost"][..., -1].sum() > 0


def record(keys: dict[str, Any], rounds: int = 12) -> dict[str, np.ndarray]:
    one = engine(keys)
    recorder = Recorder(one, 1, 3)
    recorder.take_record(0, 0.0)
    for t in range(rounds):
        one.run_round(t)
        recorder.take_record(t + 1, 0.0)
    return recorder.record().variables
