"""Ranks of layers that no model has, said when the scenario is read, each once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from otafl.core.errors import UserError
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact

MLP = {"name": "mlp", "hidden": [12]}
CNN = {"name": "cnn", "channels": [3], "kernel": 3, "hidden": [5]}
LAYERS = "(64x12: 12, 12x10: 10)"


def tree(method: str, model: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {
        "name": "ranks",
        "data": "digits",
        "model": model,
        "algorithm": {"name": method, **keys},
        "transport": "ideal",
    }


@pytest.mark.parametrize(
    ("model", "rank", "says"),
    [
        (
            MLP,
            13,
            f"rank: got 13, which is above the smaller side of every layer {LAYERS}; use at",
        ),
        (MLP, [4], f"rank: got [4] for 2 layers {LAYERS}; give one rank for each layer, or one"),
        (MLP, [12, 11], f"rank: got [12, 11], which is above the smaller side of a layer {LAYERS}"),
        (CNN, [4, 3, 2], "rank: got [4, 3, 2], which is above the smaller side of a layer (9x3: 3"),
        (CNN, [3, 3], "rank: got [3, 3] for 3 layers (9x3: 3, "),
    ],
)
def test_ranks_that_cannot_be(model: dict[str, Any], rank: Any, says: str) -> None:
    with pytest.raises(UserError) as error:
        load_scenario(tree("fedrlr_plus", model, rank=rank))
    assert len(re.findall(re.escape(f"algorithm.{says}"), str(error.value))) == 1


def test_a_list_of_another_length_is_refused_by_tdpfed_too() -> None:
    with pytest.raises(UserError, match=re.escape(f"got [4, 4, 4] for 2 layers {LAYERS}; give")):
        load_scenario(tree("tdpfed", MLP, rank=[4, 4, 4]))
    load_scenario(tree("tdpfed", MLP, rank=[400, 400]))  # clipped to what a layer can use
