"""Proximal SGD: whole rounds against the looped twin, its measure by hand."""

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

from otafl.algorithms.baselines.whole_model_methods import ProxSgd

pytestmark = pytest.mark.twin

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "prox_sgd": ({"name": "prox_sgd"}, {}),
    "prox_sgd, sensing": ({"name": "prox_sgd"}, SENSING),
    "prox_sgd, momentum": ({"name": "prox_sgd", "momentum": True, "bias_mode": "ota"}, {}),
}


@EITHER_LINK
@pytest.mark.parametrize("case", CASES)
def test_equals_the_looped_twin(case: str, air: bool) -> None:
    assert_equals_the_twin(*CASES[case], air)


def test_measures_by_hand() -> None:
    assert_measures_density(ProxSgd(ProxSgd.Settings(), mlp((2, 2, 3)), 4))


@EITHER_CODEC
def test_modules_too(codec: Any) -> None:
    assert_trains_a_module("prox_sgd", codec)
