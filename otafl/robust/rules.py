"""Robust rules, which turn the inputs of a trial into one aggregate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule, compute_mean, compute_median, sort_inputs


class MeanRule(Rule):
    """Mean of the inputs by their delivered weights, which one attacker can move at will.

    It is the aggregate of an uplink without groups, and the one with the least error without
    attackers.
    """

    is_robust: ClassVar[bool] = False

    name: Literal["mean"] = "mean"

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        return compute_mean(inputs.x, inputs.weight), memory


class CoordinateMedian(Rule):
    """Median of the inputs, coordinate by coordinate.

    Of an even number of inputs it is the mean of the two in the middle. Inputs count equally.

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards Optimal
        Statistical Rates", ICML.
    """

    name: Literal["coordinate_median"] = "coordinate_median"

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        if num_inputs < 3:
            return f"is the mean of {num_inputs} inputs; use 3 groups or more, or rule: mean"
        return ""

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        return compute_median(inputs.x, inputs.present_mask), memory


class TrimmedMean(Rule):
    """Mean of the inputs without the f largest and the f smallest, in each coordinate.

    f is the assumed share of the n inputs, rounded down. Inputs count equally.

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards Optimal
        Statistical Rates", ICML.
    """

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


ACCURACY = 1e-6
"""Accuracy of the point, relative to the median distance of the inputs from it, and smoothing nu
(Pillutla, Kakade, Harchaoui 2022)."""

STEPS = 1000
"""Most steps of Weiszfeld."""

LOOK_EVERY = 20
"""Steps after which convergence is checked."""


class GeometricMedian(Rule):
    """Point with the least sum of distances to the inputs, by Weiszfeld's steps.

        z <- sum_i a_i x_i,    a_i proportional to 1 / max(nu, |x_i - z|)

    The steps need only the distances between the inputs, because with D_ij = |x_i - x_j|^2

        |x_i - z|^2 = sum_j a_j D_ij - (1/2) sum_jk a_j a_k D_jk.

    They end when z moves by less than `ACCURACY` times the median distance from it. Inputs count
    equally.

    References
    ----------
    Pillutla, Kakade, Harchaoui 2022, "Robust Aggregation for Federated Learning", IEEE Transactions
        on Signal Processing, Algorithm 2 (smoothed Weiszfeld).
    Huang, Zhou, Wang, Shi 2021, "Byzantine-Resilient Federated Machine Learning via Over-the-Air
        Computation", arXiv 2105.10883.
    """

    name: Literal["geometric_median"] = "geometric_median"

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        if num_inputs < 3:
            text = "lies anywhere between" if num_inputs == 2 else "is the mean of"
            return f"{text} {num_inputs} inputs; use 3 groups or more, or rule: mean"
        return ""

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        return inputs.combine(find_coefficients(inputs)), memory


def find_coefficients(inputs: Inputs) -> Tensor:
    """Find the coefficients a, float64 [S, n], of the geometric median sum_i a_i x_i."""
    squared = inputs.squared_distances
    present = inputs.whole_mask.double()
    a = present / present.sum(1, keepdim=True).clamp_min(1.0)
    for step in range(STEPS):
        away = _compute_distances(a, squared)
        spread = inputs.compute_median(away)[:, None]
        weight = present / away.maximum(ACCURACY * spread).clamp_min(1e-300)
        # identical inputs are their own median
        weight = torch.where(spread > 0, weight, present)
        new = weight / weight.sum(1, keepdim=True).clamp_min(1e-300)
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            d = new - a  # coefficients of a difference, whose sum is 0
            moved = (-0.5 * torch.einsum("si,sij,sj->s", d, squared, d)).clamp_min(0.0).sqrt()
            if bool((moved <= 0.01 * ACCURACY * spread[:, 0]).all()):
                return new
        a = new
    return a


def _compute_distances(a: Tensor, squared: Tensor) -> Tensor:
    """Compute the distances [S, n] of the inputs from sum_i a_i x_i."""
    to_each = torch.einsum("sij,sj->si", squared, a)
    own = 0.5 * (to_each * a).sum(1, keepdim=True)
    return (to_each - own).clamp_min(0.0).sqrt()


class Krum(Rule):
    """The one input whose n - f - 2 nearest other inputs are nearest, by squared distances.

    n is the number of inputs, and f the assumed share of them, rounded down. It needs n > 2 f + 2.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
        Tolerant Gradient Descent", NeurIPS.
    """

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


class MultiKrum(Rule):
    """Mean of the n - f inputs with the least scores of Krum.

    n is the number of inputs, and f the assumed share of them, rounded down. It needs n > 2 f + 2.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
        Tolerant Gradient Descent", NeurIPS, section 4.
    """

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


LAST = "last"


class CentredClipping(Rule):
    """Clipping about the last aggregate, which moves by the mean of clipped differences.

        v <- v + (1/n) sum_i (x_i - v) min(1, radius / |x_i - v|)

    It starts from the aggregate of the last round, at first 0. An input moves the aggregate by at
    most radius / n in a step. Without a radius it is the median distance of the inputs from v.

    References
    ----------
    Karimireddy, He, Jaggi 2021, "Learning from History for Byzantine Robust Optimization", ICML,
        equation (CC).
    """

    name: Literal["centred_clipping"] = "centred_clipping"
    radius: float | None = Field(None, gt=0)
    """largest norm of an input's difference from the last aggregate; the median of these norms if
    not given"""
    steps: int = Field(3, ge=1, le=100)
    """clipping steps in a round"""

    def init(self, x: Tensor) -> Tensors:
        return {LAST: x}

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        v, present = memory[LAST], inputs.whole_mask.to(inputs.x.dtype)
        share = present / present.sum(1, keepdim=True).clamp_min(1.0)
        for _ in range(self.steps):
            off = (inputs.x - v[:, None]).where(inputs.present_mask, 0.0)
            norms = inputs.compute_norms(off)
            median = inputs.compute_median(norms)
            radius = median if self.radius is None else torch.full_like(median, self.radius)
            clip = (radius[:, None] / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
            v = v + torch.bmm((share * clip)[:, None], off)[:, 0]
        return v, {LAST: v}


class NormBound(Rule):
    """Weighted mean of inputs that are scaled down to a norm.

    An input adds at most `bound` times its weight. Without a bound it is the median norm of the
    inputs.

    References
    ----------
    Sun, Kairouz, Suresh, McMahan 2019, "Can You Really Backdoor Federated Learning?", arXiv
        1911.07963.
    """

    name: Literal["norm_bound"] = "norm_bound"
    bound: float | None = Field(None, gt=0)
    """largest norm of an input; the median of the norms if not given"""

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        norms = inputs.compute_norms(inputs.x)
        median = inputs.compute_median(norms)
        bound = median if self.bound is None else torch.full_like(median, self.bound)
        clip = (bound[:, None] / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
        return compute_mean(inputs.x * clip[..., None], inputs.weight), memory
