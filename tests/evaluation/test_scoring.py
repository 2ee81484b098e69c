"""Scores of models: equal ones are computed once."""

from __future__ import annotations

import torch

from otafl.core.contracts import View
from otafl.evaluation.scoring import merge_equal_models

BLOCKS = {
    "weight": torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [1.0, 2.0], [torch.nan, 0.0]]),
    "bias": torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0])[:, None],
}


def test_models_of_one_sum_are_merged_only_if_they_are_equal() -> None:
    merged = merge_equal_models(View(BLOCKS, lambda params, x: x))
    assert merged.param_index is not None
    assert merged.param_index.tolist() == [0, 1, 0, 2, 3]
    for name, block in merged.params.items():
        assert torch.equal(block[merged.param_index][:4], BLOCKS[name][:4])


def test_different_models_stay_as_they_are() -> None:
    view = View({name: block[:2] for name, block in BLOCKS.items()}, lambda params, x: x)
    assert merge_equal_models(view) is view
