r"""Take the point with the least sum of distances to the inputs, by Weiszfeld's steps.

    z <- sum_i a_i x_i,    a_i proportional to 1 / max(nu, |x_i - z|)

The steps need only the distances between the inputs, because with D_ij = |x_i - x_j|^2

    |x_i - z|^2 = sum_j a_j D_ij - (1/2) sum_jk a_j a_k D_jk.

They end when z moves by less than `accuracy` times the median distance from it. Inputs count
equally.

References
----------
Pillutla, Kakade, Harchaoui 2022, "Robust Aggregation for Federated Learning", IEEE Transactions on
    Signal Processing, Algorithm 2 (smoothed Weiszfeld).
Huang, Zhou, Wang, Shi 2021, "Byzantine-Resilient Federated Machine Learning via Over-the-Air
    Computation", arXiv 2105.10883.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule

STEPS = 1000
"""Most steps of Weiszfeld."""

LOOK_EVERY = 20
"""Steps after which convergence is checked."""


class GeometricMedian(Rule):
    """The geometric median."""

    name: Literal["geometric_median"] = "geometric_median"
    accuracy: float = Field(1e-6, gt=0, lt=1)
    """accuracy of the point, relative to the median distance of the inputs from it; it also is
    the smoothing nu"""

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        if num_inputs < 3:
            text = "lies anywhere between" if num_inputs == 2 else "is the mean of"
            return f"{text} {num_inputs} inputs; use 3 groups or more, or rule: mean"
        return ""

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        return inputs.combine(find_coefficients(inputs, self.accuracy)), memory


def find_coefficients(inputs: Inputs, accuracy: float) -> Tensor:
    """Find the coefficients a, float64 [S, n], of the geometric median sum_i a_i x_i."""
    squared = inputs.squared_distances
    present = inputs.whole_mask.double()
    a = present / present.sum(1, keepdim=True).clamp_min(1.0)
    for step in range(STEPS):
        away = _compute_distances(a, squared)
        spread = inputs.compute_median(away)[:, None]
        weight = present / away.maximum(accuracy * spread).clamp_min(1e-300)
        # identical inputs are their own median
        weight = torch.where(spread > 0, weight, present)
        new = weight / weight.sum(1, keepdim=True).clamp_min(1e-300)
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            moved = _compute_squared_norm(new - a, squared).sqrt()
            if bool((moved <= 0.01 * accuracy * spread[:, 0]).all()):
                return new
        a = new
    return a


def _compute_squared_norm(d: Tensor, squared: Tensor) -> Tensor:
    """Compute |sum_i d_i x_i|^2 [S] of coefficients [S, n] whose sum is 0."""
    return (-0.5 * torch.einsum("si,sij,sj->s", d, squared, d)).clamp_min(0.0)


def _compute_distances(a: Tensor, squared: Tensor) -> Tensor:
    """Compute the distances [S, n] of the inputs from sum_i a_i x_i."""
    to_each = torch.einsum("sij,sj->si", squared, a)
    own = 0.5 * (to_each * a).sum(1, keepdim=True)
    return (to_each - own).clamp_min(0.0).sqrt()
