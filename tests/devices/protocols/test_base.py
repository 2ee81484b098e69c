"""What all protocols have in common, and what a scenario may not ask of them."""

from __future__ import annotations

import math

import pytest
from contract.small import scenario

from otafl.core import registry
from otafl.scenario.errors import ScenarioError

pytestmark = pytest.mark.exact

NAMES = registry.list_names("protocol")


@pytest.mark.parametrize("name", NAMES)
def test_rules_say_what_the_protocol_says_of_itself(name: str) -> None:
    protocol = registry.load_settings_class("protocol", name)()
    rules = protocol.build_rules(math.inf, "drop")
    assert rules.late == ("next" if protocol.goes_on else "drop")  # else nothing is ever dropped
    assert rules.deadline_s == math.inf
    deadline_s = protocol.build_rules(2.0, "drop").deadline_s
    assert deadline_s == (2.0 if protocol.has_deadline else math.inf)


@pytest.mark.parametrize("name", NAMES)
def test_a_deadline_is_refused_where_there_is_none(name: str) -> None:
    keys = {"devices.protocol": name, "devices.deadline_s": 1.0}
    if registry.load_settings_class("protocol", name).has_deadline:
        assert scenario(keys).devices.deadline_s == 1.0
        return
    text = rf"devices\.deadline_s: got 1, but protocol '{name}' has no deadline; leave it out"
    with pytest.raises(ScenarioError, match=text):
        scenario(keys)
