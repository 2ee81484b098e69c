"""Scale inputs down to a norm, and take their weighted mean.

An input adds at most `bound` times its weight. Without a bound it is the median norm of the inputs.

References
----------
Sun, Kairouz, Suresh, McMahan 2019, "Can You Really Backdoor Federated Learning?", arXiv 1911.07963.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule, compute_mean


class NormBound(Rule):
    """The mean of inputs with bounded norms."""

    name: Literal["norm_bound"] = "norm_bound"
    bound: float | None = Field(None, gt=0)
    """largest norm of an input; the median of the norms if not given"""

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        norms = inputs.compute_norms(inputs.x)
        median = inputs.compute_median(norms)
        bound = median if self.bound is None else torch.full_like(median, self.bound)
        clip = (bound[:, None] / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
        return compute_mean(inputs.x * clip[..., None], inputs.weight), memory
