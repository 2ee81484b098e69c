"""FedRLR's four baselines: whole rounds against the looped twin, and their measures by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.baseline_bench import (
    SENSING,
    assert_equals_the_twin,
    assert_measures_density,
    assert_trains_a_module,
    small_server,
)
from twins.setting import mlp

from otafl.algorithms.baselines.whole_model_methods import FedMiD, MagnitudePruning, ProxSgd

pytestmark = pytest.mark.twin

CASES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"name": "fedmid", "bias_mode": "ota"}, {}, True),
    ({"name": "fedmid"}, {}, False),
    ({"name": "prox_sgd"}, SENSING, True),
    ({"name": "prox_sgd", "bias_mode": "ota"}, {}, False),
    ({"name": "magnitude_pruning", "keep": 0.2, "bias_mode": "ota"}, {}, True),
    ({"name": "magnitude_pruning", "keep": 0.1}, SENSING, False),
    ({"name": "fedavg", "sends": "model"}, {"name": "uniform", "bits": 3}, False),
    ({"name": "fedavg", "sends": "model"}, {}, True),
]
"""Method, codec, and whether the uplink is over the air; else it is ideal."""


@pytest.mark.parametrize(("method", "codec", "air"), CASES)
def test_equals_the_looped_twin(method: dict[str, Any], codec: dict[str, Any], air: bool) -> None:
    assert_equals_the_twin(method, codec, air)


def test_measures_by_hand() -> None:
    """Ranks 1 (the second value is 1e-4 of the first) and 2."""
    model, server = mlp((2, 2, 3)), small_server()
    assert FedMiD(FedMiD.Settings(), model, 4).compute_metrics(server, {}) == {
        "weight_rank": pytest.approx(torch.tensor([1.5, 0.0]))
    }
    assert_measures_density(ProxSgd(ProxSgd.Settings(), model, 4))
    assert_measures_density(MagnitudePruning(MagnitudePruning.Settings(), model, 4))


def test_modules_too() -> None:
    assert_trains_a_module("fedmid", {"name": "matrix_sensing", "rows": 3})
