"""Take the median of the inputs, coordinate by coordinate.

Of an even number of inputs it is the mean of the two in the middle. Inputs count equally.

References
----------
Yin, Chen, Ramchandran, Bartlett 2018, "Byzantine-Robust Distributed Learning: Towards Optimal
    Statistical Rates", ICML.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.robust.base import Inputs, Rule, compute_median


class CoordinateMedian(Rule):
    """The coordinate-wise median."""

    name: Literal["coordinate_median"] = "coordinate_median"

    def find_problem(self, num_inputs: int, num_corrupted: int) -> str:
        if num_inputs < 3:
            return f"is the mean of {num_inputs} inputs; use 3 groups or more, or rule: mean"
        return ""

    def aggregate(self, inputs: Inputs, memory: Tensors) -> tuple[Tensor, Tensors]:
        return compute_median(inputs.x, inputs.present_mask), memory
