"""Magnitude pruning: whole rounds against the looped twin, its measure by hand."""

from __future__ import annotations

from typing import Any

import pytest
from support.baseline_bench import (
    EITHER_CODEC,
    EITHER_LINK,
    SENSING,
    assert_equals_the_twin,
    assert_measures_density,
    assert_trains_a_module,
)
from twins.setting import mlp

from otafl.algorithms.baselines.whole_model_methods import MagnitudePruning

pytestmark = pytest.mark.twin

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pruning": ({"name": "magnitude_pruning", "keep": 0.2, "bias_mode": "ota"}, {}),
    "pruning, sensing": ({"name": "magnitude_pruning", "keep": 0.1}, SENSING),
    "pruning, global": ({"name": "magnitude_pruning", "keep": 0.2, "scope": "global"}, {}),
}


@EITHER_LINK
@pytest.mark.parametrize("case", CASES)
def test_equals_the_looped_twin(case: str, air: bool) -> None:
    assert_equals_the_twin(*CASES[case], air)


def test_measures_by_hand() -> None:
    assert_measures_density(MagnitudePruning(MagnitudePruning.Settings(), mlp((2, 2, 3)), 4))


@EITHER_CODEC
def test_modules_too(codec: Any) -> None:
    assert_trains_a_module("magnitude_pruning", codec)
