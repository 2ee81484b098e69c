"""Take the one input whose n - f - 2 nearest other inputs are nearest, by squared distances.

n is the number of inputs, and f the assumed share of them, rounded down. It needs n > 2 f + 2.

References
----------
Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
    Tolerant Gradient Descent", NeurIPS.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule


class Krum(Rule):
    """The input with the least score."""

    name: Literal["krum"] = "krum"

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        return describe_too_few(num_inputs, num_corrupted)

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        best = compute_scores(inputs).argmin(1)
        chosen = inputs.x[torch.arange(len(best), device=best.device), best]
        return torch.where(inputs.num_inputs[:, None] > 0, chosen, 0.0), memory


def describe_too_few(num_inputs: int, num_corrupted: int) -> str:
    """Write that n inputs are too few for f corrupted ones; empty if they are not."""
    needed = 2 * num_corrupted + 3
    if num_inputs >= needed:
        return ""
    return (
        f"needs more than 2 f + 2 inputs, and f = {num_corrupted} of {num_inputs} are assumed to "
        f"be corrupted; use {needed} groups or more, or a smaller assumed_share"
    )


def compute_scores(inputs: Inputs) -> Tensor:
    """Compute the sum of squared distances to the n - f - 2 nearest other inputs, float64 [S, n].

    Inputs that were not delivered have an infinite score.
    """
    there = inputs.whole_mask
    own = torch.eye(there.shape[1], dtype=torch.bool, device=there.device)
    missing = ~there[:, None] | ~there[..., None] | own
    ordered = inputs.squared_distances.masked_fill(missing, torch.inf).sort(2).values
    near = (inputs.num_inputs - inputs.num_corrupted - 2).clamp_min(1)[:, None, None]
    place = torch.arange(ordered.shape[2], device=near.device)
    finite = ordered.where(ordered.isfinite(), 0.0)
    scores = finite.where(place < near, 0.0).sum(2)
    return scores.masked_fill(~there, torch.inf)
