"""The asynchronous uplink, worked by hand for three devices."""

from __future__ import annotations

import pytest
from support.cells import make_clock, start_round

from otafl.clock.local_work import Slot
from otafl.devices.protocols.asynchronous import Asynchronous

pytestmark = pytest.mark.exact


def test_asynchronous_serves_who_was_ready_first() -> None:
    """Device 2 at 1 s until 4; by then 1 (at 2) and 0 (at 3) wait, in this order."""
    clock = make_clock(Asynchronous())
    start_round(clock, 0, {0: 3.0, 1: 2.0, 2: 1.0})
    assert clock.admit() == Slot(1.0, [2], [0])
    clock.transmit(3.0)
    start_round(clock, 1, {2: 0.5})
    assert clock.admit() == Slot(4.0, [1], [0])
    clock.transmit(3.0)
    start_round(clock, 2, {1: 9.0})
    assert clock.admit() == Slot(7.0, [0], [0])
    clock.transmit(3.0)
    start_round(clock, 3, {0: 9.0})
    assert clock.admit() == Slot(10.0, [2], [1])


def test_asynchronous_two_at_a_time() -> None:
    clock = make_clock(Asynchronous(together=2))
    start_round(clock, 0, {0: 3.0, 1: 2.0, 2: 1.0})
    assert clock.admit() == Slot(1.0, [2], [0])
    clock.transmit(3.0)
    start_round(clock, 1, {2: 0.0})
    assert clock.admit() == Slot(4.0, [0, 1], [0, 0])  # 1, then 0, were ready before 2
