"""The clock against times worked by hand and against a plain loop over ready times."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from otafl.clock import Clock, Interval, Slot, Speeds, TrialClock, device_speeds
from otafl.clock_config import (
    ClassesComputeConfig,
    FixedComputeConfig,
    PhoneComputeConfig,
)

SPEEDS = np.array([1.0, 2.0, 4.0])
ALL = np.arange(3)
WORK = np.full(3, 4.0)  # 4, 2 and 1 seconds


def check(slot: Slot, opened: float, on_time: list[int], started: list[int], late: list[int]):
    assert slot.opened_s == opened
    assert slot.on_time.tolist() == on_time
    assert slot.started_round.tolist() == started
    assert slot.late.tolist() == late


def test_slot_waits_for_all_without_a_deadline():
    clock = TrialClock(SPEEDS)
    clock.start(0, ALL, WORK, 0.5)
    assert clock.now() == 0.0
    check(clock.admit(), 4.5, [0, 1, 2], [0, 0, 0], [])
    assert clock.now() == 4.5
    clock.transmit(1.25)
    assert clock.now() == 5.75
    assert clock.available().all()
    clock.transmit(1.0)  # nothing to send: the server idles
    assert clock.now() == 6.75


def test_times_go_on_from_round_to_round_and_only_participants_count():
    clock = TrialClock(SPEEDS)
    clock.start(0, ALL, WORK, 0.5)
    clock.admit()
    clock.transmit(1.25)
    clock.start(1, np.array([1, 2]), np.array([3.0, 1.0]), 0.25)
    check(clock.admit(), 5.75 + 0.25 + 1.5, [1, 2], [1, 1], [])


def test_ready_at_the_deadline_is_on_time_and_just_after_is_late():
    at, before = TrialClock(SPEEDS), TrialClock(SPEEDS)
    at.start(0, ALL, WORK, 0.5)
    slot = at.admit(2.5)
    check(slot, 2.5, [1, 2], [0, 0], [0])
    assert slot.late_done.tolist() == [0.5]
    before.start(0, ALL, WORK, 0.5)
    slot = before.admit(2.4375)
    check(slot, 2.4375, [2], [0], [0, 1])
    assert slot.late_done.tolist() == [1.9375 / 4, 1.9375 / 2]


def test_slot_opens_before_the_deadline_when_all_are_ready():
    clock = TrialClock(SPEEDS)
    clock.start(0, ALL, WORK, 0.5)
    check(clock.admit(7.0), 4.5, [0, 1, 2], [0, 0, 0], [])


def test_infinite_deadline_is_none():
    clock = TrialClock(SPEEDS)
    clock.start(0, ALL, WORK, 0.5)
    check(clock.admit(np.inf), 4.5, [0, 1, 2], [0, 0, 0], [])


def test_swapping_two_speeds_swaps_who_is_admitted():
    for speeds, on_time, late in (([1.0, 9.0], [1], [0]), ([9.0, 1.0], [0], [1])):
        clock = TrialClock(np.array(speeds))
        clock.start(0, np.arange(2), np.full(2, 3.0), 0.0)
        check(clock.admit(1.0), 1.0, on_time, [0], late)


def test_nobody_ready_leaves_the_slot_empty():
    clock = TrialClock(SPEEDS)
    clock.start(0, ALL, WORK, 0.5)
    slot = clock.admit(0.25)  # still receiving
    check(slot, 0.25, [], [], [0, 1, 2])
    assert slot.late_done.tolist() == [0.0, 0.0, 0.0]
    clock.transmit(0.0)
    assert clock.now() == 0.25
    assert clock.available().all()


def test_nobody_takes_part():
    clock = TrialClock(SPEEDS)
    clock.start(0, ALL[:0], WORK[:0], 0.5)
    check(clock.admit(), 0.5, [], [], [])


def test_dropped_work_is_gone():
    """Device 0 would have been ready at 4.5; what it starts anew takes its own time."""
    clock = TrialClock(SPEEDS, late="drop")
    clock.start(0, ALL, WORK, 0.5)
    clock.admit(2.5)
    clock.transmit(1.0)
    assert clock.available().all()
    clock.start(1, np.array([0]), np.array([8.0]), 0.5)
    check(clock.admit(3.0), 6.5, [], [], [0])
    clock.transmit(0.5)
    clock.start(2, np.array([0]), np.array([8.0]), 0.5)
    check(clock.admit(), 15.5, [0], [2], [])


def test_late_work_goes_on_and_makes_a_later_slot():
    clock = TrialClock(SPEEDS, late="next")
    clock.start(0, ALL, WORK, 0.5)
    check(clock.admit(2.5), 2.5, [1, 2], [0, 0], [0])
    assert clock.available().tolist() == [False, False, False]
    clock.transmit(1.0)
    assert clock.available().tolist() == [False, True, True]

    clock.start(1, np.array([1, 2]), np.full(2, 4.0), 0.5)
    slot = clock.admit(0.875)  # device 0 at 4.5, device 2 at 5, device 1 at 6
    check(slot, 4.375, [], [], [0, 1, 2])
    assert slot.late_done.tolist() == [3.875 / 4, 0.375 / 2, 0.375 / 1]
    clock.transmit(0.0)
    assert not clock.available().any()

    clock.start(2, ALL[:0], WORK[:0], 0.0)
    check(clock.admit(0.625), 5.0, [0, 2], [0, 1], [1])
    clock.transmit(0.25)
    assert clock.available().tolist() == [True, False, True]

    clock.start(3, np.array([2]), np.array([2.0]), 0.0)
    check(clock.admit(), 6.0, [1, 2], [1, 3], [])


def test_ready_during_a_transmission_keeps_its_update_for_the_next_slot():
    clock = TrialClock(SPEEDS, late="next")
    clock.start(0, ALL, WORK, 0.5)
    clock.admit(2.5)
    clock.transmit(10.0)  # device 0 gets ready at 4.5
    assert clock.available().tolist() == [False, True, True]
    clock.start(1, ALL[:0], WORK[:0], 2.0)
    check(clock.admit(), 14.5, [0], [0], [])  # once the broadcast is over
    clock.transmit(1.0)
    assert clock.available().all()


def test_the_slot_does_not_open_during_the_broadcast_unless_at_the_deadline():
    for deadline, opened in ((None, 5.5), (9.0, 5.5), (2.0, 4.5)):
        clock = TrialClock(SPEEDS, late="next")
        clock.start(0, ALL, WORK, 0.5)
        clock.admit(2.5)
        clock.transmit(0.0)
        clock.start(1, ALL[:0], WORK[:0], 3.0)  # until 5.5; device 0 is ready at 4.5
        check(clock.admit(deadline), opened, [0], [0], [])


@pytest.mark.parametrize("deadline", [0.0, 0.5, 0.75])
def test_ties_at_the_deadline_are_on_time_whatever_the_order_of_events(deadline):
    """Broadcast, computing (none, or all of the time) and deadline end at the same instant."""
    for down in {0.0, deadline}:
        clock = TrialClock(np.ones(3))
        clock.start(0, ALL, np.array([deadline - down, 99.0, deadline - down]), down)
        check(clock.admit(deadline), deadline, [0, 2], [0, 0], [1])


@pytest.mark.parametrize("late", ["drop", "next"])
def test_against_a_plain_loop(late):
    """Same operations in the same order on floats, so the times are equal to the last bit."""
    rng = np.random.default_rng(7)
    speeds = rng.lognormal(0.0, 1.0, 12)
    clock = TrialClock(speeds, late=late)
    now, busy = 0.0, {}  # device -> (ready time, round)
    ever_late = ever_stale = 0
    for round in range(60):
        assert clock.available().tolist() == [k not in busy for k in range(12)]
        free = [k for k in range(12) if k not in busy]
        devices = np.array([k for k in free if rng.random() < 0.7], dtype=np.int64)
        flops, down, airtime = rng.random(len(devices)), rng.random() * 0.1, rng.random() * 0.1
        deadline = None if round % 7 == 6 else rng.random() * 2
        clock.start(round, devices, flops, down)
        slot = clock.admit(deadline)
        clock.transmit(airtime)

        for k, work in zip(devices.tolist(), flops, strict=True):
            busy[k] = (now + (down + work / speeds[k]), round)
        opened = max([now + down] + [ready for ready, _ in busy.values()])
        if deadline is not None:
            opened = min(opened, now + deadline)
        on_time = sorted(k for k, (ready, _) in busy.items() if ready <= opened)
        missed = sorted(set(busy) - set(on_time))
        check(slot, opened, on_time, [busy[k][1] for k in on_time], missed)
        ever_late += len(missed)
        ever_stale += sum(busy[k][1] < round for k in on_time)
        busy = {k: busy[k] for k in missed} if late == "next" else {}
        now = opened + airtime
        assert clock.now() == now
    assert ever_late > 50
    assert (ever_stale > 20) == (late == "next")


def test_intervals():
    clock = TrialClock(SPEEDS, late="drop", log=True)
    clock.start(5, ALL, WORK, 0.5)
    clock.admit(2.0)
    clock.transmit(1.0)
    assert sorted(clock.intervals) == [
        Interval(0, 5, "abandon", 0.5, 2.0),
        Interval(0, 5, "receive", 0.0, 0.5),
        Interval(1, 5, "abandon", 0.5, 2.0),
        Interval(1, 5, "receive", 0.0, 0.5),
        Interval(2, 5, "compute", 0.5, 1.5),
        Interval(2, 5, "receive", 0.0, 0.5),
        Interval(2, 5, "transmit", 2.0, 3.0),
    ]


def test_interval_of_a_device_dropped_during_the_broadcast():
    clock = TrialClock(SPEEDS, late="drop", log=True)
    clock.start(0, ALL[:1], WORK[:1], 0.5)
    clock.admit(0.25)
    assert clock.intervals == [Interval(0, 0, "abandon", 0.25, 0.25)]


def test_no_intervals_unless_asked_for():
    clock = TrialClock(SPEEDS)
    clock.start(0, ALL, WORK, 0.5)
    clock.admit()
    assert clock.intervals is None


def test_trials_are_independent_and_equal_to_themselves_alone():
    rng = np.random.default_rng(3)
    speeds, flops = rng.lognormal(size=(4, 5)), rng.random((6, 4, 5))
    down, deadline, airtime = rng.random((3, 6, 4))
    deadline[:, 2] = np.inf

    def history(trials: list[int]) -> list[list]:
        clock, seen = Clock(speeds[trials], late="next"), [[] for _ in trials]
        for r in range(6):
            free = clock.available()
            who = [row.nonzero()[0] for row in free]
            clock.begin(r, who, flops[r, trials][free], down[r, trials])
            slots = clock.open_slot(deadline[r, trials])
            clock.close_slot(airtime[r, trials])
            for entry, slot, now in zip(seen, slots, clock.now(), strict=True):
                parts = (slot.on_time, slot.started_round, slot.late, slot.late_done)
                entry.append((now, slot.opened_s, *[part.tolist() for part in parts]))
        return seen

    together = history([0, 1, 2, 3])
    assert together == [history([s])[0] for s in range(4)]
    assert len({entry[-1][0] for entry in together}) == 4
    assert any(slot[4] for slot in together[0])
    assert not any(slot[4] for slot in together[2])


def test_flops_are_taken_trial_by_trial():
    clock = Clock(np.ones((2, 3)))
    clock.begin(0, [np.array([0, 2]), np.array([1])], np.array([1.0, 2.0, 5.0]), [0.0, 0.5])
    slots = clock.open_slot()
    check(slots[0], 2.0, [0, 2], [0, 0], [])
    check(slots[1], 5.5, [1], [0], [])
    clock.close_slot([1.0, 2.0])
    assert clock.now().tolist() == [3.0, 7.5]


def test_one_number_serves_all_trials():
    clock = Clock(np.array([[1.0, 2.0], [4.0, 8.0]]))
    clock.begin(0, [np.arange(2), np.arange(2)], 4.0)
    slots = clock.open_slot(3.0)
    check(slots[0], 3.0, [1], [0], [0])
    check(slots[1], 1.0, [0, 1], [0, 0], [])
    clock.close_slot(0.5)
    assert clock.now().tolist() == [3.5, 1.5]


def test_a_stopped_trial_stands_still_and_the_others_go_on():
    clock = Clock(np.ones((2, 2)))
    for round in range(2):
        clock.begin(round, [np.arange(2), np.arange(2)], 1.0)
        slots = clock.open_slot()
        clock.close_slot(0.5)
        if round == 0:
            clock.stop(0)
    assert clock.now().tolist() == [1.5, 3.0]
    assert clock.available().tolist() == [[False, False], [True, True]]
    check(slots[0], 1.5, [], [], [])
    check(slots[1], 2.5, [0, 1], [1, 1], [])


def test_misuse_is_refused():
    clock = TrialClock(SPEEDS, late="next")
    with pytest.raises(RuntimeError, match="admit before start"):
        clock.admit()
    with pytest.raises(ValueError, match="flops must be finite"):
        clock.start(0, ALL, np.array([1.0, np.nan, 1.0]), 0.0)
    with pytest.raises(ValueError, match="flops must be finite"):
        clock.start(0, ALL, np.array([1.0, -1.0, 1.0]), 0.0)
    with pytest.raises(ValueError, match="downlink_s must be finite and not negative, got -1"):
        clock.start(0, ALL, WORK, -1.0)
    clock.start(0, ALL, WORK, 0.0)
    with pytest.raises(RuntimeError, match="start before"):
        clock.start(0, ALL, WORK, 0.0)
    with pytest.raises(ValueError, match="deadline_s"):
        clock.admit(-1.0)
    with pytest.raises(RuntimeError, match="transmit before admit"):
        clock.transmit(1.0)
    clock.admit(3.0)
    with pytest.raises(ValueError, match="airtime_s must be finite and not negative, got inf"):
        clock.transmit(np.inf)
    clock.transmit(0.0)
    with pytest.raises(ValueError, match="device 0 is busy"):
        clock.start(1, ALL, WORK, 0.0)


def speeds_of(config, devices: int) -> Speeds:
    return device_speeds(config, devices, np.random.default_rng(0))


def test_fixed_speeds():
    speeds = speeds_of(FixedComputeConfig(flops_per_s=8e9, flops_per_cycle=4, kappa=2e-28), 3)
    assert speeds.flops_per_s.tolist() == [8e9] * 3
    assert speeds.frequency_hz.tolist() == [2e9] * 3
    assert speeds.kappa.tolist() == [2e-28] * 3


def test_a_list_of_speeds_goes_to_the_devices_in_order_and_round_again():
    config = ClassesComputeConfig.model_validate({"classes": [5e9, 1e9, 3e9]})
    assert speeds_of(config, 7).flops_per_s.tolist() == [5e9, 1e9, 3e9, 5e9, 1e9, 3e9, 5e9]


def test_many_equal_classes_go_in_turn():
    """Seventy classes: no round-off in the shares may reorder them."""
    given = np.arange(1.0, 71.0)
    config = ClassesComputeConfig.model_validate({"classes": given.tolist()})
    assert np.array_equal(speeds_of(config, 140).flops_per_s, np.tile(given, 2))


def test_classes_in_order_keep_to_their_shares():
    config = ClassesComputeConfig.model_validate(
        {
            "flops_per_cycle": 2,
            "classes": [
                {"flops_per_s": 1e9, "share": 3},
                {"flops_per_s": 8e9, "share": 1, "kappa": 5e-27},
            ],
        }
    )
    speeds = speeds_of(config, 16)
    fast = speeds.flops_per_s == 8e9
    assert fast.sum() == 4
    assert fast.tolist() == [False, False, True, False] * 4
    assert np.where(fast, 5e-27, 1e-28).tolist() == speeds.kappa.tolist()
    assert np.array_equal(speeds.frequency_hz, speeds.flops_per_s / 2)


def test_phone_frequencies_stay_in_their_range():
    config = PhoneComputeConfig(frequency_min_hz=1.25e9, frequency_max_hz=1.5e9, flops_per_cycle=8)
    speeds = speeds_of(config, 2000)
    assert 1.25e9 <= speeds.frequency_hz.min() < 1.26e9
    assert 1.49e9 < speeds.frequency_hz.max() <= 1.5e9
    assert np.array_equal(speeds.flops_per_s, 8 * speeds.frequency_hz)


def test_phone_range_in_the_wrong_order_is_refused():
    with pytest.raises(ValidationError, match="must not exceed frequency_max_hz, got 3e\\+09"):
        PhoneComputeConfig(frequency_min_hz=3e9)


def test_rows_of_stacked_speeds():
    trials = [
        speeds_of(FixedComputeConfig(flops_per_s=f, flops_per_cycle=2, kappa=f / 1e30), 2)
        for f in (1e9, 3e9)
    ]
    stacked = Speeds.stack(trials)
    assert stacked.flops_per_s.tolist() == [[1e9, 1e9], [3e9, 3e9]]
    rows = stacked.rows(np.array([1, 0, 1]), np.array([0, 1, 1]))
    assert rows.flops_per_s.tolist() == [3e9, 1e9, 3e9]
    assert rows.frequency_hz.tolist() == [1.5e9, 0.5e9, 1.5e9]
    assert rows.kappa.tolist() == [3e9 / 1e30, 1e9 / 1e30, 3e9 / 1e30]
