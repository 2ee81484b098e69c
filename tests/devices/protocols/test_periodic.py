"""Periodic slots, worked by hand for three devices."""

from __future__ import annotations

import pytest
from support.cells import make_clock, start_round

from otafl.clock.local_work import Slot
from otafl.devices.protocols.periodic import Periodic

pytestmark = pytest.mark.exact


def test_periodic_slots() -> None:
    """A slot every 2 s: at 2 device 2, at 4 nobody, at 6 the others; the transmission from 6 to 9
    covers the one at 8."""
    clock = make_clock(Periodic(period_s=2.0))
    start_round(clock, 0, {0: 5.0, 1: 6.0, 2: 1.0})
    assert clock.admit() == Slot(2.0, [2], [0])
    clock.transmit(0.5)
    start_round(clock, 1, {2: 8.0})
    assert clock.admit() == Slot(4.0, [], [])
    clock.transmit(0.0)
    start_round(clock, 2, {})
    assert clock.admit() == Slot(6.0, [0, 1], [0, 0])  # ready at the very instant counts
    clock.transmit(3.0)
    start_round(clock, 3, {0: 0.5})
    assert clock.admit() == Slot(10.0, [0], [3])
    assert clock.get_busy() == [2]
    clock.transmit(0.0)
    start_round(clock, 4, {})
    assert clock.admit() == Slot(12.0, [2], [1])


def test_periods_without_exact_floats() -> None:
    """A tenth of a second is no float: a thousand slots still come one by one."""
    clock = make_clock(Periodic(period_s=0.1))
    for round in range(1000):
        start_round(clock, round, {})
        assert clock.admit().opened_s == pytest.approx(0.1 * (round + 1), rel=1e-12)
        clock.transmit(0.0)
