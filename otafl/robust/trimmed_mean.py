"""Drop the f largest and the f smallest of the inputs in each coordinate, and take the mean.

f is the assumed share of the n inputs, rounded down. Inputs count equally.

References
----------
Yin, Chen, Ramchandran, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards Optimal
    Statistical Rates", ICML.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule, sort_inputs


class TrimmedMean(Rule):
    """The coordinate-wise trimmed mean."""

    example: ClassVar[Mapping[str, Any]] = {
        "robust.groups": "devices",
        "robust.assumed_share": 0.25,
    }

    name: Literal["trimmed_mean"] = "trimmed_mean"

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        if num_corrupted == 0:
            least = math.ceil(1e3 / num_inputs) / 1e3
            remedy = f"assumed_share: {least:g}" if num_inputs > 2 else "3 groups or more"
            return f"drops none of {num_inputs} inputs, and is the mean; use {remedy}"
        return ""

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        ordered, count = sort_inputs(inputs.x, inputs.present_mask)
        drop = inputs.num_corrupted[:, None, None].minimum((count - 1).clamp_min(0) // 2)
        place = torch.arange(ordered.shape[1], device=count.device)[:, None]
        kept = (place >= drop) & (place < count - drop)
        total = ordered.where(kept, 0.0).sum(1)
        return total / kept.sum(1).clamp_min(1), memory
