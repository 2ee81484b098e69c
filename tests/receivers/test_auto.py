"""What `auto` stands for."""

from __future__ import annotations

import pytest

from otafl import receivers
from otafl.core import registry
from otafl.receivers.auto import Auto

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("power", "scale"), [("blind", "policy"), ("multi_antenna_ci", "mmse"), ("tci", "mmse")]
)
def test_it_is_the_receiver_that_the_policy_is_made_for(power: str, scale: str) -> None:
    policy = registry.make_component("power", registry.load_settings_class("power", power)())
    many, one = (receivers.build(Auto(scale=scale), policy, count) for count in (2, 1))
    assert many.name == policy.receiver
    assert one.name == ("mrc" if power == "blind" else "scalar")
    assert many.scale == one.scale == scale


def test_a_receiver_that_is_named_is_taken() -> None:
    section = registry.load_settings_class("receiver", "eigen")(scale="mmse")
    policy = registry.load_settings_class("power", "ci")()
    for count in (1, 4):
        assert receivers.build(section, policy, count) is section
