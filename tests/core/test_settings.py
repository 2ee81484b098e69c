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

    _one = excludes("snr_db", "loss_db", said="give one of snr_db {snr_db:g} and loss_db")


class Coded(Link):
    rate: str = "shannon"
    coding: str = "ideal"
    bits: int = 8
    symbols: int | None = None
    outage: bool = True

    _scheme = requires("rate", "mcs", when={"coding": "ldpc"}, said="ldpc: rate is {rate}")
    _bound = requires("symbols", when={"bits": GIVEN, "coding": "ideal"}, said="no symbols")
    _outage = only_with("outage", coding="ideal", rate="mcs", said="outage: {coding}, {rate}")
    _never = excludes("symbols", when={"rate": "never", "outage": True}, said="never {symbols}")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ""),
        ({"snr_db": 1.0}, ""),
        ({"snr_db": None, "loss_db": 1.0}, ""),
        ({"snr_db": 1.5, "loss_db": 2.0}, "give one of snr_db 1.5 and loss_db"),
        ({"coding": "ldpc"}, "ldpc: rate is shannon"),
        ({"coding": "ldpc", "rate": "mcs"}, ""),
        ({"bits": 8}, ""),
        ({"bits": 4}, "no symbols"),
        ({"bits": 4, "symbols": 3}, ""),
        ({"bits": 4, "coding": "ldpc", "rate": "mcs"}, ""),
        ({"outage": True}, ""),
        ({"outage": False}, "outage: ideal, shannon"),
        ({"outage": False, "rate": "mcs", "coding": "ldpc"}, "outage: ldpc, mcs"),
        ({"outage": False, "rate": "mcs"}, ""),
        ({"symbols": 5, "rate": "never"}, "never 5"),
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
