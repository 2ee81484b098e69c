"""Settings that were removed: old scenarios load at the last default with a warning, and keep their
hash."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from otafl.core.errors import RemovedSetting
from otafl.scenario import (
    ScenarioError,
    build_json_schema,
    compute_scenario_hash,
    load_scenario,
    to_yaml,
)

OLD = {"name": "old", "algorithm": {"name": "pfedbred", "family": "gaussian"}}
NEW = {"name": "old", "algorithm": {"name": "pfedbred"}}


def test_the_last_default_is_left_out_with_a_warning() -> None:
    with pytest.warns(RemovedSetting, match=r"'family' of 'pfedbred' .* delete the key") as told:
        scenario = load_scenario(OLD)
    assert len({str(one.message) for one in told}) == 1
    assert scenario == load_scenario(NEW)
    assert "family" not in to_yaml(scenario)


def test_the_hash_stays() -> None:
    """Of the scenario, as it was when the key was there."""
    with pytest.warns(RemovedSetting):
        assert compute_scenario_hash(load_scenario(OLD)) == compute_scenario_hash(
            load_scenario(NEW)
        )
    before = "242f3472f0a1f3599fd87143497ca302205479ef086479aa8a7ab805c7feb179"
    assert compute_scenario_hash(load_scenario(NEW)) == before


@pytest.mark.parametrize(
    "tree",
    [
        {"name": "old", "algorithm": {"name": "pfedbred", "family": "poisson"}},
        {"name": "old", "sweep": {"algorithm": [{"name": "pfedbred", "family": "poisson"}]}},
    ],
)
def test_another_value_is_an_error(tree: dict[str, Any]) -> None:
    with pytest.raises(
        ScenarioError, match=r"algorithm.*: got 'poisson', but this setting was removed, and only"
    ):
        load_scenario(tree)


def test_a_choice_of_a_sweep_may_have_it() -> None:
    with pytest.warns(RemovedSetting):
        load_scenario({"name": "old", "sweep": {"algorithm": [OLD["algorithm"], "fedavg"]}})


def test_nobody_is_offered_it() -> None:
    assert "'family'" not in str(build_json_schema())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_scenario(NEW)
