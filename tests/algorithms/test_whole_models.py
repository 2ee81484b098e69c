"""FedAvg that sends whole models, FedRLR's baseline 4: whole rounds against the looped twin."""

from __future__ import annotations

from typing import Any

import pytest
from support.baseline_bench import (
    EITHER_CODEC,
    EITHER_LINK,
    assert_equals_the_twin,
    assert_trains_a_module,
)

pytestmark = pytest.mark.twin

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "quantisation": (
        {"name": "fedavg", "sends": "model", "bias_mode": "ideal"},
        {"name": "uniform", "bits": 3},
    ),
    "fedavg, no codec": ({"name": "fedavg", "sends": "model", "bias_mode": "ota"}, {}),
}


@EITHER_LINK
@pytest.mark.parametrize("case", CASES)
def test_equals_the_looped_twin(case: str, air: bool) -> None:
    assert_equals_the_twin(*CASES[case], air)


@EITHER_CODEC
def test_modules_too(codec: Any) -> None:
    assert_trains_a_module("fedavg", codec)
