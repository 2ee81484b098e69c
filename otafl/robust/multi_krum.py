"""Take the mean of the n - f inputs with the least scores of Krum.

n is the number of inputs, and f the assumed share of them, rounded down. It needs n > 2 f + 2.

References
----------
Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
    Tolerant Gradient Descent", NeurIPS, section 4.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule
from otafl.robust.krum import compute_scores, describe_too_few


class MultiKrum(Rule):
    """The mean of the inputs with the least scores."""

    name: Literal["multi_krum"] = "multi_krum"

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        return describe_too_few(num_inputs, num_corrupted)

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        order = compute_scores(inputs).argsort(dim=1, stable=True)
        rank = torch.empty_like(order).scatter_(
            1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
        )
        most = (inputs.num_inputs - inputs.num_corrupted).clamp_min(1)[:, None]
        kept = ((rank < most) & inputs.whole_mask).to(inputs.x.dtype)
        return inputs.combine(kept / kept.sum(1, keepdim=True).clamp_min(1.0)), memory
