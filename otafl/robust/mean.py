"""Take the mean of the inputs by their delivered weights, which one attacker can move at will.

It is the aggregate of an uplink without groups, and the one with the least error without attackers.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule, compute_mean


class MeanRule(Rule):
    """The weighted mean."""

    is_robust: ClassVar[bool] = False

    name: Literal["mean"] = "mean"

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        return compute_mean(inputs.x, inputs.weight), memory
