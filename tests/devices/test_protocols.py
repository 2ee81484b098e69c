"""Slots of each protocol, worked by hand for three devices, and what a scenario may not ask."""

from __future__ import annotations

from typing import Any

import pytest
from contract.small import scenario
from support.cells import make_clock, start_round

from otafl.clock.local_work import WorkSlot
from otafl.devices.protocols import Asynchronous, Periodic, Quorum
from otafl.scenario.errors import ScenarioError

pytestmark = pytest.mark.exact


def test_asynchronous_serves_who_was_ready_first() -> None:
    """Device 2 at 1 s until 4; by then 1 (at 2) and 0 (at 3) wait, in this order."""
    clock = make_clock(Asynchronous())
    start_round(clock, 0, {0: 3.0, 1: 2.0, 2: 1.0})
    assert clock.admit() == WorkSlot(1.0, [2], [0])
    clock.transmit(3.0)
    start_round(clock, 1, {2: 0.5})
    assert clock.admit() == WorkSlot(4.0, [1], [0])
    clock.transmit(3.0)
    start_round(clock, 2, {1: 9.0})
    assert clock.admit() == WorkSlot(7.0, [0], [0])


def test_periodic_slots() -> None:
    """A slot every 2 s: at 2 device 2, at 4 nobody, at 6 the others; the transmission from 6 to 9
    covers the one at 8."""
    clock = make_clock(Periodic(period_s=2.0))
    start_round(clock, 0, {0: 5.0, 1: 6.0, 2: 1.0})
    assert clock.admit() == WorkSlot(2.0, [2], [0])
    clock.transmit(0.5)
    start_round(clock, 1, {2: 8.0})
    assert clock.admit() == WorkSlot(4.0, [], [])
    clock.transmit(0.0)
    start_round(clock, 2, {})
    assert clock.admit() == WorkSlot(6.0, [0, 1], [0, 0])  # ready at the very instant counts
    clock.transmit(3.0)
    start_round(clock, 3, {0: 0.5})
    assert clock.admit() == WorkSlot(10.0, [0], [3])
    assert clock.get_busy() == [2]


def test_periods_without_exact_floats() -> None:
    """A tenth of a second is no float: slots still come one by one."""
    clock = make_clock(Periodic(period_s=0.1))
    for round in range(200):
        start_round(clock, round, {})
        assert clock.admit().opened_s == pytest.approx(0.1 * (round + 1), rel=1e-12)
        clock.transmit(0.0)


def test_quorum() -> None:
    """Two of three: devices 2 and 1 at 3 s; then 0, who was slower than a round, and 2."""
    clock = make_clock(Quorum(ready=2))
    start_round(clock, 0, {0: 5.0, 1: 3.0, 2: 1.0}, down=0.0)
    assert clock.admit() == WorkSlot(3.0, [1, 2], [0, 0])
    clock.transmit(1.0)
    start_round(clock, 1, {1: 9.0, 2: 3.0})
    assert clock.admit() == WorkSlot(7.0, [0, 2], [0, 1])
    clock.transmit(0.0)
    start_round(clock, 2, {})  # one is at work: it is the quorum
    assert clock.admit() == WorkSlot(13.0, [1], [1])
    clock = make_clock(Quorum(ready=3), deadline_s=2.0)
    start_round(clock, 0, {0: 5.0, 1: 3.0, 2: 1.0})
    assert clock.admit() == WorkSlot(2.0, [2], [0])
    assert clock.lost == 0


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"devices.protocol": "asynchronous", "devices.deadline_s": 1.0},
            r"devices\.deadline_s: got 1, but protocol 'asynchronous' has no deadline; leave it",
        ),
        (
            {"devices.protocol": {"name": "quorum", "ready": 3}, "devices.participants": 2},
            r"devices\.protocol\.ready: got 3; must be at most 2, the number of participants",
        ),
        (
            {"devices.late": "next"},
            r"devices\.late: 'next' needs devices\.deadline_s: without a deadline the slot waits",
        ),
    ],
)
def test_refuses(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        scenario(keys)
