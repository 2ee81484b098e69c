"""Rules between the fields of a settings class: `requires`, `excludes` and `only_with`.

Mutations that make a test here fail: a rule that looks at one of its conditions alone, or takes a
default that is spelled out for a given value; a message without the values.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from otafl.core.settings import GIVEN, Settings, excludes, only_with, requires

pytestmark = pytest.mark.exact


class Link(Settings):
    """A parent, whose rule holds for its children too."""

    snr_db: float | None = None
    loss_db: float | None = None

    _one = excludes("snr_db", "loss_db", why="both give the level")


class Coded(Link):
    rate: str = "shannon"
    coding: str = "ideal"
    bits: int = 8
    symbols: int | None = None
    outage: bool = True

    _scheme = requires("coding", "ldpc", rate="mcs", why="a scheme has the code")
    _bound = requires("bits", GIVEN, symbols=GIVEN)
    _outage = only_with("outage", coding="ideal", rate="mcs")
    _never = excludes("symbols", rate="never", outage=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ""),
        ({"snr_db": 1.0}, ""),
        ({"snr_db": None, "loss_db": 1.0}, ""),
        (
            {"snr_db": 1.5, "loss_db": 2.0},
            "snr_db: 1.5 and loss_db: 2 exclude each other, since both give the level; change one "
            "of them",
        ),
        (
            {"coding": "ldpc"},
            "coding: ldpc needs rate: mcs (got shannon), since a scheme has the code; change rate "
            "or coding",
        ),
        ({"coding": "ldpc", "rate": "mcs"}, ""),
        ({"bits": 8}, ""),
        ({"bits": 4}, "bits: 4 needs symbols, which is not given; change symbols or bits"),
        ({"bits": 4, "symbols": 3}, ""),
        ({"outage": True}, ""),
        (
            {"outage": False, "rate": "mcs", "coding": "ldpc"},
            "outage: false is only for coding: ideal (got ldpc) and rate: mcs (got mcs); leave "
            "outage out, or change coding and rate",
        ),
        ({"outage": False, "rate": "mcs"}, ""),
        (
            {"symbols": 5, "rate": "never"},
            "symbols: 5 and rate: never and outage: true exclude each other; change one of them",
        ),
        ({"rate": "never"}, ""),
    ],
)
def test_rules(given: dict[str, Any], said: str) -> None:
    if not said:
        assert Coded(**given).model_dump() == Coded().model_dump() | given
        return
    with pytest.raises(ValidationError) as error:
        Coded(**given)
    assert [str(one["ctx"]["error"]) for one in error.value.errors()] == [said]
