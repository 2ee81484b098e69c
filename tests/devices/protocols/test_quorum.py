"""Slots of a quorum, worked by hand for three devices."""

from __future__ import annotations

import pytest
from contract.small import scenario
from support.cells import make_clock, start_round

from otafl.clock.local_work import Slot
from otafl.devices.protocols.quorum import Quorum
from otafl.scenario.errors import ScenarioError

pytestmark = pytest.mark.exact


def test_quorum() -> None:
    """Two of three: devices 2 and 1 at 3 s; then 0, who was slower than a round, and 2."""
    clock = make_clock(Quorum(ready=2))
    start_round(clock, 0, {0: 5.0, 1: 3.0, 2: 1.0}, down=0.0)
    assert clock.admit() == Slot(3.0, [1, 2], [0, 0])
    clock.transmit(1.0)
    start_round(clock, 1, {1: 9.0, 2: 3.0})
    assert clock.admit() == Slot(7.0, [0, 2], [0, 1])
    clock.transmit(0.0)
    start_round(clock, 2, {})  # one is at work: it is the quorum
    assert clock.admit() == Slot(13.0, [1], [1])


def test_who_is_ready_at_the_very_instant_is_in_the_slot() -> None:
    clock = make_clock(Quorum(ready=1))
    start_round(clock, 0, {0: 3.0, 1: 3.0, 2: 4.0})
    assert clock.admit() == Slot(3.0, [0, 1], [0, 0])


def test_quorum_or_deadline() -> None:
    clock = make_clock(Quorum(ready=3), deadline_s=2.0)
    start_round(clock, 0, {0: 5.0, 1: 3.0, 2: 1.0})
    assert clock.admit() == Slot(2.0, [2], [0])
    clock.transmit(0.5)
    start_round(clock, 1, {2: 1.0})
    assert clock.admit() == Slot(4.5, [1, 2], [0, 1])
    assert clock.lost == 0


def test_a_quorum_of_more_than_take_part_is_refused() -> None:
    keys = {"devices.protocol": {"name": "quorum", "ready": 3}}
    assert scenario(keys).devices.protocol.ready == 3
    text = r"devices\.protocol\.ready: got 3; must be at most 2, the number of participants"
    with pytest.raises(ScenarioError, match=text):
        scenario(keys | {"devices.participants": 2})
