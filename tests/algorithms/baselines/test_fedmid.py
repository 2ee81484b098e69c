"""FedMiD: whole rounds against the looped twin, its measure by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.baseline_bench import (
    EITHER_CODEC,
    EITHER_LINK,
    assert_equals_the_twin,
    assert_trains_a_module,
    small_server,
)
from twins.setting import mlp

from otafl.algorithms.baselines.whole_model_methods import FedMiD

pytestmark = pytest.mark.twin

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fedmid": ({"name": "fedmid", "bias_mode": "ota"}, {}),
    "fedmid, no server prox": ({"name": "fedmid", "server_prox": False}, {}),
}


@EITHER_LINK
@pytest.mark.parametrize("case", CASES)
def test_equals_the_looped_twin(case: str, air: bool) -> None:
    assert_equals_the_twin(*CASES[case], air)


def test_measures_by_hand() -> None:
    """Ranks 1 (the second value is 1e-4 of the first) and 2."""
    model, server = mlp((2, 2, 3)), small_server()
    assert FedMiD(FedMiD.Settings(), model, 4).compute_metrics(server, {}) == {
        "weight_rank": pytest.approx(torch.tensor([1.5, 0.0]))
    }


@EITHER_CODEC
def test_modules_too(codec: Any) -> None:
    assert_trains_a_module("fedmid", codec)
