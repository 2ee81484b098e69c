"""Holds the operations of adapters to what is counted in real rounds."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from algorithms.test_operations import padded_adapters, said
from support.local_rounds import run_local_round

from otafl.algorithms.adapters.adapters import AdaptedLayer
from otafl.algorithms.adapters.lora_settings import LoraSettings, count_adapter_flops
from otafl.core.contracts import Workload

pytestmark = pytest.mark.exact

WITHIN = {1: 0.05, 20: 0.01}
"""Batch size -> relative difference. Sums and differences of factors in a step are not counted."""

SETTINGS: list[dict[str, Any]] = [
    {"mode": "both", "rank": 16},
    {"mode": "freeze_a", "rank": 16},
    {"mode": "square", "basis": "weight", "rank": 16},
    {"mode": "tangent", "rank": 8},
    {"mode": "alternate", "rank": 16},
    {"mode": "share_a", "rank": 16},
]


@pytest.mark.parametrize("batch", WITHIN)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: one["mode"])
def test_operations_are_those_of_a_round(settings: Mapping[str, Any], batch: int) -> None:
    """Of small minibatches most are those of a step, of larger ones those of samples.

    Mode alternate trains A and B in turn and says the mean of two rounds.
    """
    keys = {
        "model.hidden": [40, 30],
        "training.local_steps": 6,
        "training.batch_size": batch,
        "algorithm": {"name": "lora", **settings},
    }
    rounds = 2 if settings["mode"] == "alternate" else 1
    one = run_local_round("lora", keys, rounds)
    counted = one.counted.total - padded_adapters(one)
    assert rounds * said(one) == pytest.approx(counted, rel=WITHIN[batch])


LAYER = AdaptedLayer("w", inputs=5, outputs=3, rank=2, positions=7)


def make_model(**changes: Any) -> Any:
    """A model with 7 products with w [5, 3], 11 MACs of two inputs, and a head [3, 4]."""
    numbers: dict[str, Any] = {
        "shapes": {"w": (5, 3), "v": (3, 4), "c": (4,)},
        "linear_weights": {"w": (5, 3)},
        "macs": 7 * 15 + 11,
        "first_macs": 7 * 15,
        "elementwise": 13,
        "count_products": {"w": 7, "v": 1}.__getitem__,
    }
    return SimpleNamespace(**numbers | changes)


def count(model: Any, layers: list[AdaptedLayer], head: list[str], mode: Any = "both") -> float:
    """Count the operations of one step with one sample."""
    load = Workload(num_steps=1, batch_size=1, num_samples=np.ones(1))
    return float(count_adapter_flops(model, layers, head, LoraSettings(mode=mode), load).item())


@pytest.mark.parametrize(
    ("mode", "passes", "projection", "trained"),
    [
        ("both", 32 + 20 + 12 + 12, 0, 16),  # (B A) x, the gradients by A and by B, and g B
        ("freeze_a", 32 + 12, 0, 6),
        ("square", 32 + 12, 4 * 3 * 4, 4),
        ("tangent", 64 + 12 + 20 + 12, 4 * 3 * 4, 16),
        ("alternate", 32 + 22, 0, 8),  # half of the gradients
    ],
)
def test_operations_of_a_first_layer_by_hand(
    mode: str, passes: float, projection: float, trained: int
) -> None:
    """Both passes of the frozen model without its first gradient by an input: 2 * 116 forward, 4
    for each of the 11 products of two inputs, and 13 elementwise ones each way. An adapter is
    applied at each of the 7 positions. A trained coordinate takes 2 for its step, 1 for the sum."""
    frozen = 2 * 116 + 4 * 11 + 2 * 13
    expected = frozen + 7 * passes + projection + 3 * trained
    assert count(make_model(), [LAYER], [], mode) == expected


def test_operations_of_a_head_by_hand() -> None:
    """One forward pass and no backward pass below the head, the gradient by its 12 weights, and 16
    trained coordinates."""
    assert count(make_model(), [], ["v", "c"]) == 2 * 116 + 13 + 2 * 12 + 3 * 16


def test_operations_of_a_model_with_unknown_layers_by_hand() -> None:
    """All gradients of the frozen weights, except those by the samples."""
    frozen = 6 * 116 - 2 * 105 + 2 * 13
    found = count(make_model(linear_weights={}), [LAYER], [], "freeze_a")
    assert found == frozen + 7 * (32 + 12) + 3 * 6
