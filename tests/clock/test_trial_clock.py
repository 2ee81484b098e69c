"""The clock against times worked by hand and against a plain loop over ready times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.made_devices import make_mains_hardware
from support.rounding import assert_agree

from otafl.clock.local_work import Interval, WorkSlot
from otafl.clock.trial_clock import TrialClock
from otafl.devices.hardware import CAUSES
from otafl.devices.protocols import Late, Rules

pytestmark = pytest.mark.exact


SPEEDS = np.array([1.0, 2.0, 4.0])
ALL = np.arange(3)
WORK = np.full(3, 4.0)  # 4, 2 and 1 seconds


class Cell(TrialClock):
    """Devices of given speeds, in operations a second, asked for operations. A whole update costs a
    joule of computing."""

    def __init__(self, speeds: np.ndarray, late: Late = "drop", log: bool = False) -> None:
        super().__init__(make_mains_hardware(len(speeds)), Rules(late=late), log=log)
        self.speeds = speeds

    def ask(self, round: int, devices: np.ndarray, flops: np.ndarray, downlink_s: float) -> None:
        seconds = (flops / self.speeds[devices]).tolist()
        watts = [1.0 / one if one else 0.0 for one in seconds]
        down = [downlink_s] * len(seconds)
        self.start(round, devices.tolist(), down, seconds, watts, downlink_s)

    def done(self) -> list[float]:
        """What each device has computed, in updates."""
        return self.compute_spent_j()[:, CAUSES.index("compute")].tolist()

    def slot(self, deadline_s: float = np.inf) -> WorkSlot:
        self.rules = replace(self.rules, deadline_s=deadline_s)
        return self.admit()


def check(
    clock: TrialClock,
    slot: WorkSlot,
    opened: float,
    on_time: Sequence[int],
    started: Sequence[int],
    at_work: Sequence[int] = (),
) -> None:
    assert slot.opened_s == opened
    assert slot.on_time == list(on_time)
    assert slot.started_round == list(started)
    assert clock.get_busy() == list(at_work)


def test_ready_at_the_deadline_is_on_time_and_just_after_is_late():
    at, before = Cell(SPEEDS), Cell(SPEEDS)
    at.ask(0, ALL, WORK, 0.5)
    slot = at.slot(2.5)
    check(at, slot, 2.5, [1, 2], [0, 0])
    assert at.done() == [0.5, 1.0, 1.0]
    before.ask(0, ALL, WORK, 0.5)
    slot = before.slot(2.4375)
    check(before, slot, 2.4375, [2], [0])
    assert before.done() == [1.9375 / 4, 1.9375 / 2, 1.0]


def test_late_work_goes_on_and_makes_a_later_slot():
    clock = Cell(SPEEDS, late="next")
    clock.ask(0, ALL, WORK, 0.5)
    check(clock, clock.slot(2.5), 2.5, [1, 2], [0, 0], [0])
    assert clock.get_available().tolist() == [False, False, False]
    clock.transmit(1.0)
    assert clock.get_available().tolist() == [False, True, True]

    clock.ask(1, np.array([1, 2]), np.full(2, 4.0), 0.5)
    slot = clock.slot(0.875)  # device 0 at 4.5, device 2 at 5, device 1 at 6
    check(clock, slot, 4.375, [], [], [0, 1, 2])
    assert clock.done() == [3.875 / 4, 1.0 + 0.375 / 2, 1.0 + 0.375]
    clock.transmit(0.0)
    assert not clock.get_available().any()

    clock.ask(2, ALL[:0], WORK[:0], 0.0)
    check(clock, clock.slot(0.625), 5.0, [0, 2], [0, 1], [1])
    clock.transmit(0.25)
    assert clock.get_available().tolist() == [True, False, True]

    clock.ask(3, np.array([2]), np.array([2.0]), 0.0)
    check(clock, clock.slot(), 6.0, [1, 2], [1, 3], [])


def test_the_slot_does_not_open_during_the_broadcast_unless_at_the_deadline():
    for deadline, opened in ((np.inf, 5.5), (9.0, 5.5), (2.0, 4.5)):
        clock = Cell(SPEEDS, late="next")
        clock.ask(0, ALL, WORK, 0.5)
        clock.slot(2.5)
        clock.transmit(0.0)
        clock.ask(1, ALL[:0], WORK[:0], 3.0)  # until 5.5; device 0 is ready at 4.5
        check(clock, clock.slot(deadline), opened, [0], [0], [])


@pytest.mark.parametrize("late", ["drop", "next"])
def test_against_a_plain_loop(late):
    rng = np.random.default_rng(7)
    speeds = rng.lognormal(0.0, 1.0, 12)
    clock = Cell(speeds, late=late)
    now, busy = 0.0, {}  # device -> (ready time, round)
    ever_late = ever_stale = 0
    for round in range(60):
        assert clock.get_available().tolist() == [k not in busy for k in range(12)]
        free = [k for k in range(12) if k not in busy]
        devices = np.array([k for k in free if rng.random() < 0.7], dtype=np.int64)
        flops, down, airtime = rng.random(len(devices)), rng.random() * 0.1, rng.random() * 0.1
        deadline = np.inf if round % 7 == 6 else rng.random() * 2
        clock.ask(round, devices, flops, down)
        slot = clock.slot(deadline)
        at_work = clock.get_busy()
        clock.transmit(airtime)

        for k, work in zip(devices.tolist(), flops, strict=True):
            busy[k] = (now + (down + work / speeds[k]), round)
        opened = max([now + down] + [ready for ready, _ in busy.values()])
        opened = min(opened, now + deadline)
        on_time = sorted(k for k, (ready, _) in busy.items() if ready <= opened)
        missed = sorted(set(busy) - set(on_time))
        assert_agree(vars(slot), vars(WorkSlot(opened, on_time, [busy[k][1] for k in on_time])))
        assert at_work == (missed if late == "next" else [])
        ever_late += len(missed)
        ever_stale += sum(busy[k][1] < round for k in on_time)
        busy = {k: busy[k] for k in missed} if late == "next" else {}
        now = opened + airtime
        assert clock.get_time_s() == pytest.approx(now, rel=1e-9)
    assert ever_late > 50
    assert (ever_stale > 20) == (late == "next")


def test_intervals():
    clock = Cell(SPEEDS, late="drop", log=True)
    clock.ask(5, ALL, WORK, 0.5)
    clock.slot(2.0)
    clock.transmit(1.0)
    assert sorted(clock.intervals) == [
        Interval(0, 5, "lost", 0.0, 2.0),
        Interval(1, 5, "lost", 0.0, 2.0),
        Interval(2, 5, "compute", 0.5, 1.5),
        Interval(2, 5, "receive", 0.0, 0.5),
        Interval(2, 5, "transmit", 2.0, 3.0),
        Interval(2, 5, "wait", 1.5, 2.0),
    ]


def test_misuse_is_refused():
    clock = TrialClock(make_mains_hardware(3), Rules(late="next"))
    for seconds in (np.nan, -1.0, np.inf):
        with pytest.raises(ValueError, match="seconds must be finite and not negative"):
            TrialClock(make_mains_hardware(1)).start(0, [0], [0.0], [seconds], [0.0])
    clock.start(0, [0, 1], [0.0, 0.0], [1.0, 9.0], [0.0, 0.0])
    clock.rules = replace(clock.rules, deadline_s=3.0)
    clock.admit()
    with pytest.raises(ValueError, match="airtime_s must be finite and not negative, got inf"):
        clock.transmit(np.inf)
    clock.transmit(0.0)
    with pytest.raises(ValueError, match="device 1 is busy"):
        clock.start(1, [1], [0.0], [1.0], [0.0])
