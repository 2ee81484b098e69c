"""Move the last aggregate by the mean of the inputs' differences from it, each clipped to a radius.

    v <- v + (1/n) sum_i (x_i - v) min(1, radius / |x_i - v|)

It starts from the aggregate of the last round, at first 0. An input moves the aggregate by at most
radius / n in a step. Without a radius it is the median distance of the inputs from v.

References
----------
Karimireddy, He, Jaggi 2021, "Learning from History for Byzantine Robust Optimization", ICML,
    equation (CC).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule

LAST = "last"


class CentredClipping(Rule):
    """Clipping about the last aggregate."""

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
