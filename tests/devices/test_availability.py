"""Comings and goings of the form that the clock reads, of every law of the table, and lives that
depend on nobody else.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from pydantic import ValidationError
from support.lives import make_availability, take_changes
from support.rounding import assert_agree

from otafl.core import registry
from otafl.devices.availability import DiurnalAvailability

pytestmark = pytest.mark.exact

FIELDS: dict[str, dict[str, Any]] = {"trace": {"file": "availability.csv"}}
LAWS = ["markov", "diurnal"]
"""Laws by which devices' lives are drawn."""


@pytest.mark.parametrize("name", registry.list_names("availability"))
def test_every_availability_tells_its_changes(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "availability.csv").write_text("device,start_s,end_s\n0,0,3\n1,2,4\n")
    availability = make_availability(name, [7, 8], [0, 0], 3, **FIELDS.get(name, {}))
    for trial, device in itertools.product(range(2), range(3)):
        life = availability.list_changes(trial, device)
        for (at, there), (then, next_there) in itertools.pairwise(take_changes(life or ())):
            assert 0 <= at < then
            assert there != next_there
        assert take_changes(availability.list_changes(trial, device) or ()) == take_changes(
            availability.list_changes(trial, device) or ()
        )


@pytest.mark.parametrize("name", LAWS)
def test_a_life_depends_on_seed_trial_and_device_alone(name: str) -> None:
    stack = make_availability(name, [7, 7, 8], [0, 1, 0], 4)
    alone = make_availability(name, [7], [1], 9)
    other = take_changes(stack.list_changes(0, 3))
    expected = take_changes(stack.list_changes(1, 3))
    assert_agree(take_changes(alone.list_changes(0, 3)), expected)
    assert take_changes(stack.list_changes(1, 3)) == expected  # asked again, it begins again
    assert other != expected != take_changes(stack.list_changes(2, 3))


def test_what_a_day_cannot_be() -> None:
    with pytest.raises(ValidationError, match=r"below 1; with mean: 0.6, use less than 0.4"):
        DiurnalAvailability.Settings(mean=0.6, amplitude=0.4)
    most = 0.3 / math.sqrt(1 + (2 * math.pi * 21600 / 86400) ** 2)
    DiurnalAvailability.Settings(mean=0.3, amplitude=most * 0.999, mean_session_s=21600)
    with pytest.raises(ValidationError, match=f"at most {most:.4g}"):
        DiurnalAvailability.Settings(mean=0.3, amplitude=most * 1.001, mean_session_s=21600)


@pytest.mark.parametrize("name", LAWS)
def test_some_devices_are_absent_at_first(name: str) -> None:
    availability = make_availability(name, [7], [0], 30)
    firsts = [next(availability.list_changes(0, device)) for device in range(30)]
    assert {at == 0.0 for at, _ in firsts} == {True, False}
    assert not any(there for _, there in firsts)
