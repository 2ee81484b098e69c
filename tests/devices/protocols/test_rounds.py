"""Slots that wait for all, worked by hand."""

from __future__ import annotations

import math

import pytest
from contract.small import scenario

from otafl.devices.protocols import Rules
from otafl.devices.protocols.rounds import Rounds
from otafl.scenario.errors import ScenarioError

pytestmark = pytest.mark.exact


def test_rules() -> None:
    assert Rounds().build_rules(math.inf, "drop") == Rules()
    assert Rounds().build_rules(2.0, "next") == Rules(deadline_s=2.0, late="next")


def test_nobody_is_late_without_a_deadline() -> None:
    text = r"devices\.late: 'next' needs devices\.deadline_s: without a deadline the slot waits"
    with pytest.raises(ScenarioError, match=text):
        scenario({"devices.late": "next"})
    assert scenario({"devices.late": "next", "devices.deadline_s": 1.0}).devices.late == "next"
