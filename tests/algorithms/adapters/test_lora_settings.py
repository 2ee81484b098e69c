"""Settings of LoRA that a scenario refuses."""

from __future__ import annotations

from typing import Any

import pytest
from contract.small import scenario

from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm.mode": "residual"}, "needs each of them; .* algorithm.mode: both or freeze_a"),
        ({"algorithm.aggregate": "svd"}, "needs each of them"),
        ({"algorithm.aggregate": "dense", "algorithm.mode": "square"}, "needs mode: both"),
        ({"algorithm.mode": "square"}, "pretrained_here, or basis: weight"),
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
