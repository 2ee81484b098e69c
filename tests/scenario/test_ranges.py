"""Ranges in `--set`."""

from __future__ import annotations

from typing import Any

import pytest

from otafl import load_scenario
from otafl.core.errors import UserError
from otafl.scenario import ScenarioError
from otafl.scenario.ranges import expand_range

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0:20:5", [0, 5, 10, 15, 20]),
        ("0:19:5", [0, 5, 10, 15]),
        ("-30:0:10", [-30, -20, -10, 0]),
        ("20:0:-10", [20, 10, 0]),
        ("0:0.3:0.1", [0.0, 0.1, 0.2, 0.3]),
        ("1e-3:3e-3:1e-3", [0.001, 0.002, 0.003]),
        ("5:5:1", [5]),
        ("12:30", "12:30"),
        ("a:b:c", "a:b:c"),
        ("my:part:1", "my:part:1"),
        (7, 7),
    ],
)
def test_numbers_of_a_range(text: Any, numbers: Any) -> None:
    assert expand_range(text) == numbers
    if isinstance(numbers, list):
        assert [type(one) for one in expand_range(text)] == [type(one) for one in numbers]


@pytest.mark.parametrize("text", ["0:20:0", "0:20:-5", "0:1e9:1"])
def test_a_range_that_is_none(text: str) -> None:
    with pytest.raises(UserError):
        expand_range(text)


def test_an_axis_of_the_command_line() -> None:
    scenario = load_scenario({"name": "a"}, ["sweep.channel.snr_db=0:20:10", "sweep.seed=0:2:1"])
    assert scenario.sweep == {"channel.snr_db": [0, 10, 20], "seed": [0, 1, 2]}


def test_errors_name_the_option() -> None:
    with pytest.raises(ScenarioError, match=r"^--set sweep.seed=0:2:0: expected first:last:step"):
        load_scenario({"name": "a"}, ["sweep.seed=0:2:0"])
    with pytest.raises(ScenarioError, match="--set seed=0:2:1: seed: got '0:2:1'"):
        load_scenario({"name": "a"}, ["seed=0:2:1"])
