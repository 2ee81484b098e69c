"""Parts of an uplink that do not go together are refused when the scenario is read, with what would
do.

Mutations that make a test here fail: each check left out, a receiver that would do refused, the
losses of a digital uplink looked for in the wrong settings.
"""

from __future__ import annotations

from typing import Any

import pytest

from otafl.scenario import load_scenario
from otafl.scenario.errors import ScenarioError


def said(tree: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as error:
        load_scenario({"name": "x", **tree})
    return str(error.value)


@pytest.mark.parametrize("receiver", ["scalar", "eigen", "uniform_forcing"])
def test_blind_devices_need_the_sum_of_channels(receiver: str) -> None:
    assert said({"power": "blind", "receiver": receiver}) == (
        f"receiver: '{receiver}' does not go with power: 'blind', whose devices do not know their "
        "phases; auto or mrc would do"
    )


@pytest.mark.parametrize("receiver", ["auto", "mrc"])
def test_receivers_that_would_do(receiver: str) -> None:
    assert load_scenario({"name": "x", "power": "blind", "receiver": receiver})


def test_an_average_plan_is_one_of_power() -> None:
    tree = {"transport": {"name": "over_the_air", "snr_convention": "total_energy"}}
    assert load_scenario({"name": "x", "power": "gbma", **tree})
    assert "'cao_average', which plans for a budget on the power" in said(
        {"power": "cao_average", **tree}
    )


def test_quadrature_pairs_reals_of_the_whole_payload() -> None:
    tree = {"name": "over_the_air", "quadrature": True, "normalise": "block"}
    assert "normalise: payload goes with it" in said({"transport": tree})
