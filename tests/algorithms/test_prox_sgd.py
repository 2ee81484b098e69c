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
    assert_the_paper_s_steps,
    assert_trains_a_module,
)
from twins.setting import mlp

from otafl.algorithms.prox_sgd import ProxSgd
from otafl.core.settings import list_former_defaults

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


def test_first_defaults_are_the_paper_s() -> None:
    """Fact 17; A22."""
    assert_the_paper_s_steps(ProxSgd.Settings(**list_former_defaults(ProxSgd.Settings)))
    assert list_former_defaults(ProxSgd.Settings)["l1_weight"] == 0.02


@EITHER_CODEC
def test_modules_too(codec: Any) -> None:
    assert_trains_a_module("prox_sgd", codec)
