"""Comings and goings of the form that the clock reads, of every law of the table, and lives that
depend on nobody else.
"""

from __future__ import annotations

import itertools
import math

import pytest
from pydantic import ValidationError
from support.lives import make_lives, take_changes
from support.rounding import assert_agree

from otafl.devices.availability import DiurnalAvailability

pytestmark = pytest.mark.exact

LAWS = ["markov", "diurnal"]
"""Laws by which devices' lives are drawn."""


@pytest.mark.parametrize("name", LAWS)
def test_a_life_depends_on_seed_trial_and_device_alone(name: str) -> None:
    stack = [
        [take_changes(life) for life in own] for own in make_lives(name, [7, 7, 8], [0, 1, 0], 4)
    ]
    for (at, there), (then, next_there) in itertools.pairwise(stack[0][0]):
        assert 0 <= at < then
        assert there != next_there
    assert_agree(take_changes(make_lives(name, [7], [1], 9)[0][3]), stack[1][3])
    assert stack[0][3] != stack[1][3] != stack[2][3]


def test_what_a_day_cannot_be() -> None:
    with pytest.raises(ValidationError, match=r"below 1; with mean: 0.6, use less than 0.4"):
        DiurnalAvailability(mean=0.6, amplitude=0.4)
    most = 0.3 / math.sqrt(1 + (2 * math.pi * 21600 / 86400) ** 2)
    DiurnalAvailability(mean=0.3, amplitude=most * 0.999, mean_session_s=21600)
    with pytest.raises(ValidationError, match=f"at most {most:.4g}"):
        DiurnalAvailability(mean=0.3, amplitude=most * 1.001, mean_session_s=21600)


@pytest.mark.parametrize("name", LAWS)
def test_some_devices_are_absent_at_first(name: str) -> None:
    firsts = [next(life) for life in make_lives(name, [7], [0], 30)[0]]
    assert {at == 0.0 for at, _ in firsts} == {True, False}
    assert not any(there for _, there in firsts)
