"""When slots open under each protocol, worked by hand for three devices, and which of their updates
are sent, kept and lost when devices leave.

Mutations that make a test here fail: a slot opens before what happens at its very instant; a
periodic slot at the instant of the last one, or one that a
transmission covers; a quorum of devices that are not there waits for ever; the asynchronous uplink
serves by number, not by who was ready first; a device that left keeps its update; one that leaves
while it transmits loses it; the clock does not wait for devices to come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from otafl.clock.local_work import Interval, Slot
from otafl.clock.trial_clock import TrialClock
from otafl.devices.config_hardware import FixedComputeConfig
from otafl.devices.config_protocol import (
    AsynchronousConfig,
    PeriodicConfig,
    QuorumConfig,
    RoundsConfig,
)
from otafl.devices.hardware import devices_of
from otafl.devices.protocol import Rules, rules_of

Lives = list[list[tuple[float, bool]] | None]


def cell(config: Any, lives: Lives | None = None, devices: int = 3, **rules: Any) -> TrialClock:
    hardware = devices_of(FixedComputeConfig(), devices, np.random.default_rng(0))
    made = rules_of(config, rules.get("deadline_s"), rules.get("late", "drop"))
    each: list[Iterator | None] = [None if one is None else iter(one) for one in lives or []]
    return TrialClock(hardware, made, each, log=True)


def ask(clock: TrialClock, round: int, work: dict[int, float], down: float = 0.0) -> None:
    """Devices that start now, and the seconds that they compute."""
    rows = len(work)
    clock.start(round, list(work), [down] * rows, list(work.values()), [0.0] * rows)


def test_rules() -> None:
    assert rules_of(RoundsConfig(), None, "drop") == Rules()
    assert rules_of(RoundsConfig(), 2.0, "next") == Rules(deadline_s=2.0, late="next")
    assert rules_of(QuorumConfig(ready=3), 2.0, "drop").deadline_s == 2.0
    for config in (PeriodicConfig(), QuorumConfig(), AsynchronousConfig()):
        assert rules_of(config, None, "drop").late == "next"  # nothing is ever dropped


def test_periodic_slots() -> None:
    """A slot every 2 s: at 2 device 2, at 4 nobody, at 6 the others; the transmission from 6 to 9
    covers the one at 8."""
    clock = cell(PeriodicConfig(period_s=2.0))
    ask(clock, 0, {0: 5.0, 1: 6.0, 2: 1.0})
    assert clock.admit() == Slot(2.0, [2], [0])
    clock.transmit(0.5)
    ask(clock, 1, {2: 8.0})
    assert clock.admit() == Slot(4.0, [], [])
    clock.transmit(0.0)
    ask(clock, 2, {})
    assert clock.admit() == Slot(6.0, [0, 1], [0, 0])  # ready at the very instant counts
    clock.transmit(3.0)
    ask(clock, 3, {0: 0.5})
    assert clock.admit() == Slot(10.0, [0], [3])
    assert clock.at_work() == [2]
    clock.transmit(0.0)
    ask(clock, 4, {})
    assert clock.admit() == Slot(12.0, [2], [1])


def test_periods_without_exact_floats() -> None:
    """A tenth of a second is no float: a thousand slots still come one by one."""
    clock = cell(PeriodicConfig(period_s=0.1))
    for round in range(1000):
        ask(clock, round, {})
        assert clock.admit().opened_s == pytest.approx(0.1 * (round + 1), rel=1e-12)
        clock.transmit(0.0)


def test_quorum() -> None:
    """Two of three: devices 2 and 1 at 3 s; then 0, who was slower than a round, and 2."""
    clock = cell(QuorumConfig(ready=2))
    ask(clock, 0, {0: 5.0, 1: 3.0, 2: 1.0}, down=0.0)
    assert clock.admit() == Slot(3.0, [1, 2], [0, 0])
    clock.transmit(1.0)
    ask(clock, 1, {1: 9.0, 2: 3.0})
    assert clock.admit() == Slot(7.0, [0, 2], [0, 1])
    clock.transmit(0.0)
    ask(clock, 2, {})  # one is at work: it is the quorum
    assert clock.admit() == Slot(13.0, [1], [1])


def test_who_is_ready_at_the_very_instant_is_in_the_slot() -> None:
    clock = cell(QuorumConfig(ready=1))
    ask(clock, 0, {0: 3.0, 1: 3.0, 2: 4.0})
    assert clock.admit() == Slot(3.0, [0, 1], [0, 0])


def test_quorum_or_deadline() -> None:
    clock = cell(QuorumConfig(ready=3), deadline_s=2.0)
    ask(clock, 0, {0: 5.0, 1: 3.0, 2: 1.0})
    assert clock.admit() == Slot(2.0, [2], [0])
    clock.transmit(0.5)
    ask(clock, 1, {2: 1.0})
    assert clock.admit() == Slot(4.5, [1, 2], [0, 1])
    assert clock.lost == 0


def test_asynchronous_serves_who_was_ready_first() -> None:
    """Device 2 at 1 s until 4; by then 1 (at 2) and 0 (at 3) wait, in this order."""
    clock = cell(AsynchronousConfig())
    ask(clock, 0, {0: 3.0, 1: 2.0, 2: 1.0})
    assert clock.admit() == Slot(1.0, [2], [0])
    clock.transmit(3.0)
    ask(clock, 1, {2: 0.5})
    assert clock.admit() == Slot(4.0, [1], [0])
    clock.transmit(3.0)
    ask(clock, 2, {1: 9.0})
    assert clock.admit() == Slot(7.0, [0], [0])
    clock.transmit(3.0)
    ask(clock, 3, {0: 9.0})
    assert clock.admit() == Slot(10.0, [2], [1])


def test_asynchronous_two_at_a_time() -> None:
    clock = cell(AsynchronousConfig(together=2))
    ask(clock, 0, {0: 3.0, 1: 2.0, 2: 1.0})
    assert clock.admit() == Slot(1.0, [2], [0])
    clock.transmit(3.0)
    ask(clock, 1, {2: 0.0})
    assert clock.admit() == Slot(4.0, [0, 1], [0, 0])  # 1, then 0, were ready before 2


def test_a_device_that_leaves_loses_its_update_and_the_round_goes_on() -> None:
    """Device 1 leaves at 2 s, half done, and is back at 6; the slot does not wait for it."""
    clock = cell(RoundsConfig(), [None, [(2.0, False), (6.0, True)], None])
    ask(clock, 0, {0: 3.0, 1: 4.0, 2: 1.0})
    assert clock.admit() == Slot(3.0, [0, 2], [0, 0])
    clock.transmit(1.0)
    assert (clock.started, clock.lost) == (3, 1)
    assert clock.available().tolist() == [True, False, True]
    with pytest.raises(ValueError, match="device 1 is busy with an earlier update, or away"):
        ask(clock, 1, {1: 1.0})
    clock = cell(RoundsConfig(), [None, [(2.0, False), (6.0, True)], None])
    ask(clock, 0, {0: 3.0, 1: 4.0, 2: 1.0})
    clock.admit()
    clock.transmit(4.0)  # until 7
    assert clock.available().all()
    assert [one for one in clock.history() if one.device == 1] == [
        Interval(1, 0, "lost", 0.0, 2.0),
        Interval(1, -1, "left", 2.0, 6.0),
    ]


def test_a_ready_device_that_leaves_is_not_in_the_slot() -> None:
    clock = cell(RoundsConfig(), [None, None, [(2.0, False)]])
    ask(clock, 0, {0: 3.0, 1: 4.0, 2: 1.0})
    assert clock.admit() == Slot(4.0, [0, 1], [0, 0])
    assert clock.lost == 1


def test_who_leaves_while_it_transmits_finishes_first() -> None:
    clock = cell(RoundsConfig(), [[(3.5, False), (9.0, True)], None, None])
    ask(clock, 0, {0: 3.0, 1: 1.0, 2: 1.0})
    assert clock.admit() == Slot(3.0, [0, 1, 2], [0, 0, 0])
    clock.transmit(1.0)
    assert clock.lost == 0
    assert clock.available().tolist() == [False, True, True]
    assert Interval(0, 0, "transmit", 3.0, 4.0) in clock.history()


def test_who_comes_back_while_it_transmits_is_available() -> None:
    clock = cell(RoundsConfig(), [[(3.25, False), (3.75, True)], None, None])
    ask(clock, 0, {0: 3.0})
    clock.admit()
    clock.transmit(1.0)
    assert clock.available().all()


def test_the_server_waits_for_somebody_to_come() -> None:
    lives: Lives = [[(0.0, False), (7.0, True)], [(0.0, False), (5.0, True), (6.0, False)]]
    clock = cell(RoundsConfig(), lives, devices=2)
    assert not clock.available().any()
    assert clock.wait_for_devices()
    assert clock.now() == 5.0
    assert clock.available().tolist() == [False, True]
    assert clock.wait_for_devices()  # it need not wait
    assert clock.now() == 5.0
    ask(clock, 0, {1: 3.0})
    assert clock.admit() == Slot(6.0, [], [])  # the only one is gone
    clock.transmit(0.0)
    assert clock.wait_for_devices()
    assert clock.now() == 7.0
    gone = cell(RoundsConfig(), [[(0.0, False)]], devices=1)
    assert not gone.wait_for_devices()


def test_a_crash_cuts_the_slot_short_and_takes_the_device_away() -> None:
    clock = cell(RoundsConfig())
    ask(clock, 0, {0: 1.0, 1: 1.0, 2: 1.0})
    clock.admit()
    clock.transmit(2.0, on_air_s=[2.0, 0.5, 2.0], crashed=[False, True, False], downtime_s=5.0)
    assert clock.now() == 3.0
    assert clock.available().tolist() == [True, False, True]
    ask(clock, 1, {0: 10.0})
    clock.admit()
    assert clock.available().tolist() == [False, True, True]
    history = [one for one in clock.history() if one.device == 1]
    assert Interval(1, 0, "transmit", 1.0, 1.5) in history
    assert Interval(1, -1, "crashed", 3.0, 8.0) in history
