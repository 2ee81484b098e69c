"""Settings of LoRA that a scenario refuses, and operations of adapters by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contract.small import scenario

from otafl.algorithms.adapters.adapters import AdaptedLayer, count_adapter_flops
from otafl.core.contracts import Workload
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm.mode": "residual"}, "needs each of them; .* algorithm.mode: both or freeze_a"),
        ({"algorithm.aggregate": "svd"}, "needs each of them"),
        ({"algorithm.aggregate": "dense", "algorithm.mode": "square"}, "needs mode: both"),
        ({"algorithm.mode": "tangent", "algorithm.alpha": 8}, "alpha scales factors"),
        ({"algorithm.weights": "norm", "algorithm.mode": "share_a"}, "weights: norm needs"),
        ({"algorithm.weights": "norm", "privacy.clip": 1.0}, "the noise that hides data"),
        (
            {"algorithm.weights": "norm", "robust.groups": 2, "robust.rule": "norm_bound"},
            "no robust mean",
        ),
        ({"algorithm.targets": [], "algorithm.head": "frozen"}, "trains nothing"),
        ({"algorithm.targets": [], "algorithm.mode": "square"}, "mode: is for adapters"),
        ({"server": "momentum"}, "steps along averaged increments"),
        ({"algorithm.levels": []}, "must be a list of at least 1"),
        ({"algorithm.levels": [2, 4]}, "levels must decrease"),
        ({"algorithm.levels": [8, 2]}, "use rank: 8"),
        ({"algorithm.levels": [2, 1], "algorithm.mode": "tangent"}, "both or freeze_a"),
        ({"algorithm.power_split": "norm", "algorithm.mode": "share_a"}, "do not send together"),
        (
            {"algorithm.power_split": "norm", "algorithm.aggregate": "dense"},
            "do not send together",
        ),
        ({"algorithm.power_split": "norm", "transport": "digital"}, "transport: over_the_air"),
        ({"algorithm.mode": "alternate", "devices.protocol": "quorum"}, "use protocol: rounds"),
        ({"algorithm.mode": "alternate", "codec": "topk"}, "use codec: identity"),
        (
            {"algorithm.mode": "residual", "transport": "ideal", "robust.groups": 2},
            "needs the update of each device by itself",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], words: str) -> None:
    tree: dict[str, Any] = {"algorithm.name": "lora", "algorithm.rank": 2} | changes
    with pytest.raises(UserError, match=words):
        scenario(tree)


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


def count(model: Any, layers: list[AdaptedLayer], head: list[str], trained: str = "AB") -> float:
    """Count the operations of one step with one sample."""
    load = Workload(num_steps=1, batch_size=1, num_samples=np.ones(1))
    return float(count_adapter_flops(model, layers, head, trained, load).item())


@pytest.mark.parametrize(
    ("tensors", "passes", "projection", "coordinates"),
    [
        ("AB", 32 + 20 + 12 + 12, 0, 16),  # (B A) x, the gradients by A and by B, and g B
        ("A", 32 + 20 + 12, 0, 10),
        ("B", 32 + 12, 0, 6),
        ("R", 32 + 12, 4 * 3 * 4, 4),
        ("ab", 64 + 12 + 20 + 12, 4 * 3 * 4, 16),
    ],
)
def test_operations_of_a_first_layer_by_hand(
    tensors: str, passes: float, projection: float, coordinates: int
) -> None:
    """Both passes of the frozen model without its first gradient by an input: 2 * 116 forward, 4
    for each of the 11 products of two inputs, and 13 elementwise ones each way. An adapter is
    applied at each of the 7 positions. A trained coordinate takes 2 for its step, 1 for the sum."""
    frozen = 2 * 116 + 4 * 11 + 2 * 13
    expected = frozen + 7 * passes + projection + 3 * coordinates
    assert count(make_model(), [LAYER], [], tensors) == expected


def test_operations_of_a_head_by_hand() -> None:
    """One forward pass and no backward pass below the head, the gradient by its 12 weights, and 16
    trained coordinates."""
    assert count(make_model(), [], ["v", "c"]) == 2 * 116 + 13 + 2 * 12 + 3 * 16


def test_operations_of_a_model_with_unknown_layers_by_hand() -> None:
    """All gradients of the frozen weights, except those by the samples."""
    frozen = 6 * 116 - 2 * 105 + 2 * 13
    found = count(make_model(linear_weights={}), [LAYER], [], "B")
    assert found == frozen + 7 * (32 + 12) + 3 * 6
