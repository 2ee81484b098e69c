"""The data set chooses the loss that a scenario does not name, at every point of a sweep."""

from __future__ import annotations

from typing import Any

import pytest
from contract.small import BASE

from otafl.scenario import compute_scenario_hash, expand, load_scenario
from otafl.scenario.writing import to_yaml
from otafl.scenario.yaml_source import parse


def load(**sections: Any) -> Any:
    return load_scenario({**BASE, **sections})


@pytest.mark.parametrize(
    ("data", "model", "loss"),
    [
        ("digits", "mlp", "cross_entropy"),
        ("ridge", "linear", "squared"),
        ("parkinsons", "linear", "squared"),
        ("shakespeare", "ngram", "next_token"),
    ],
)
def test_the_data_set_chooses_the_loss(data: str, model: str, loss: str) -> None:
    scenario = load(data=data, model=model)
    assert scenario.loss.name == loss
    assert "loss" not in scenario.model_fields_set
    named = load(data=data, model=model, loss=loss)
    assert compute_scenario_hash(named) == compute_scenario_hash(scenario)
    again = load_scenario(parse(to_yaml(scenario)).data)
    assert again.loss == scenario.loss
    assert compute_scenario_hash(again) == compute_scenario_hash(scenario)


def test_points_of_a_sweep_over_data_have_losses_of_their_own() -> None:
    swept = load(data="digits", sweep={"data": ["digits", "ridge"]})
    assert [point.scenario.loss.name for point in expand(swept)] == ["cross_entropy", "squared"]
    again = load_scenario(parse(to_yaml(swept)).data)
    assert [point.scenario.loss.name for point in expand(again)] == ["cross_entropy", "squared"]
    assert compute_scenario_hash(again) == compute_scenario_hash(swept)
