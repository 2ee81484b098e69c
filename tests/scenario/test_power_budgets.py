"""A sweep over power budgets of different kinds says so, and a fair one says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from otafl.scenario import expand, list_notes, load_scenario
from otafl.scenario.notes import find_power_constraint

pytestmark = pytest.mark.exact

PEAK = {"name": "tci", "constraint": "peak"}


def noted(**keys: Any) -> list[str]:
    notes = list_notes(expand(load_scenario({"name": "s", **keys})))
    return [text for text in notes if "budgets" in text]


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"power": "tci"}, "average"),
        ({"power": PEAK}, "peak"),
        ({"power": "genie"}, "none"),
        ({"power": "tci", "transport": "ideal"}, None),
        ({"transport": "reed"}, "peak"),
        ({"transport": "digital"}, "average"),
        ({"transport": {"name": "digital", "gain_threshold": 0.0}}, "peak"),
        ({"transport": {"name": "digital", "gain_threshold": 0.3}}, "average"),
        ({"transport": {"name": "digital", "gain_threshold": 0.3, "constraint": "peak"}}, "peak"),
    ],
)
def test_kind_of_a_scenario(keys: dict[str, Any], kind: str | None) -> None:
    assert find_power_constraint(load_scenario({"name": "s", **keys})) == kind


def test_only_different_kinds_are_noted() -> None:
    snrs = {"channel.snr_db": [0, 10]}
    assert not noted(sweep=snrs | {"power": ["gbma", "ci", PEAK]})
    assert not noted(power="tci", sweep=snrs)
    assert not noted(power="gbma", sweep={"transport": ["ideal", "over_the_air"]})
    assert noted(sweep=snrs | {"power": ["gbma", "ci", "tci"]}) == [
        "power budgets differ: tci on average over fading, others in every round"
    ]
    assert noted(sweep={"power": ["genie", "tci", PEAK, "gbma"]}) == [
        "power budgets differ: genie without a bound, tci on average over fading, "
        "others in every round"
    ]
    free = {"name": "digital", "gain_threshold": 0.0}
    assert noted(power="tci", sweep={"transport": ["over_the_air", "ofdm", free]}) == [
        "power budgets differ: digital(gain_threshold=0.0) in every round, others on average over "
        "fading"
    ]
    assert not noted(power="tci", sweep={"transport": ["over_the_air", "digital"]})
    joint = [
        {"transport": "over_the_air", "power": "tci"},
        {"transport": "over_the_air", "power": "gbma"},
        {"transport": free, "power": "gbma"},
    ]
    assert noted(sweep={"zip": joint}) == [
        "power budgets differ: tci on average over fading, others in every round"
    ]
