"""Devices that leave, come back and crash: which of their updates are sent, kept and lost."""

from __future__ import annotations

import pytest
from support.cells import Lives, make_clock, start_round

from otafl.clock.local_work import Interval, WorkSlot
from otafl.devices.protocols import Rounds

pytestmark = pytest.mark.exact


def test_a_device_that_leaves_loses_its_update_and_the_round_goes_on() -> None:
    """Device 1 leaves at 2 s, half done, and is back at 6; the slot does not wait for it."""
    clock = make_clock(Rounds(), [None, [(2.0, False), (6.0, True)], None])
    start_round(clock, 0, {0: 3.0, 1: 4.0, 2: 1.0})
    assert clock.admit() == WorkSlot(3.0, [0, 2], [0, 0])
    clock.transmit(1.0)
    assert (clock.started, clock.lost) == (3, 1)
    assert clock.get_available().tolist() == [True, False, True]
    with pytest.raises(ValueError, match="device 1 is busy with an earlier update, or away"):
        start_round(clock, 1, {1: 1.0})
    clock = make_clock(Rounds(), [None, [(2.0, False), (6.0, True)], None])
    start_round(clock, 0, {0: 3.0, 1: 4.0, 2: 1.0})
    clock.admit()
    clock.transmit(4.0)  # until 7
    assert clock.get_available().all()
    assert [one for one in clock.history() if one.device == 1] == [
        Interval(1, 0, "lost", 0.0, 2.0),
        Interval(1, -1, "left", 2.0, 6.0),
    ]


def test_who_leaves_while_it_transmits_finishes_first() -> None:
    clock = make_clock(Rounds(), [[(3.5, False), (9.0, True)], None, None])
    start_round(clock, 0, {0: 3.0, 1: 1.0, 2: 1.0})
    assert clock.admit() == WorkSlot(3.0, [0, 1, 2], [0, 0, 0])
    clock.transmit(1.0)
    assert clock.lost == 0
    assert clock.get_available().tolist() == [False, True, True]
    assert Interval(0, 0, "transmit", 3.0, 4.0) in clock.history()


def test_the_server_waits_for_somebody_to_come() -> None:
    lives: Lives = [[(0.0, False), (7.0, True)], [(0.0, False), (5.0, True), (6.0, False)]]
    clock = make_clock(Rounds(), lives, devices=2)
    assert not clock.get_available().any()
    assert clock.wait_for_devices()
    assert clock.get_time_s() == 5.0
    assert clock.get_available().tolist() == [False, True]
    assert clock.wait_for_devices()  # it need not wait
    assert clock.get_time_s() == 5.0
    start_round(clock, 0, {1: 3.0})
    assert clock.admit() == WorkSlot(6.0, [], [])  # the only one is gone
    clock.transmit(0.0)
    assert clock.wait_for_devices()
    assert clock.get_time_s() == 7.0
    gone = make_clock(Rounds(), [[(0.0, False)]], devices=1)
    assert not gone.wait_for_devices()
