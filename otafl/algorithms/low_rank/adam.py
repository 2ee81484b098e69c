"""Steps of Adam on the gradient of a quadratic penalty, row by row.

References
----------
Kingma, Ba 2015, "Adam: A Method for Stochastic Optimization", Algorithm 1.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from otafl.core.adam import BETAS, EPSILON
from otafl.core.constants import get_constant

CORRECTIONS = 64
"""Number of steps whose corrections are computed at once."""

STEP = 12.0
"""Operations per coordinate of a step.

First moment (3), second moment (4), its root (1), corrections for the start (2), quotient and
subtraction (2).
"""


class PenaltyAdam:
    r"""Adam on rows of numbers, in place, from gradients over the penalty's weight lambda.

    Parameters
    ----------
    rows : Tensor [n, Q]
        Numbers to optimise.
    rate : Tensor [n]
        Step size of each row.
    penalty : Tensor [n]
        Weight lambda of each row.

    Notes
    -----
    Without the factor lambda in the gradient, m and v lack the factors lambda and lambda^2. The
    step is the same if epsilon is divided by lambda:

    .. math::

        \frac{\lambda m}{\lambda \sqrt{v} + \epsilon} = \frac{m}{\sqrt{v} + \epsilon / \lambda}.

    So lambda matters only through epsilon and through the personal model.
    """

    def __init__(self, rows: Tensor, rate: Tensor, penalty: Tensor) -> None:
        self._rows, self._rate = rows, rate[:, None]
        self._epsilon = EPSILON / penalty[:, None]
        self._m, self._v = torch.zeros_like(rows), torch.zeros_like(rows)
        self._under = torch.empty_like(rows)
        self._count = 0

    def advance(self) -> None:
        """Count a step, and look up the corrections for moments that start at zero."""
        place = self._count % CORRECTIONS
        if place == 0:
            self._correct_next_steps()
        self._scale, self._offset = self._corrections[place]
        self._count += 1

    def _correct_next_steps(self) -> None:
        """Compute the corrections of the next steps, which are many small tensors, at once."""
        counts = range(self._count + 1, self._count + 1 + CORRECTIONS)
        dtype, device = self._rate.dtype, self._rate.device
        first, root = (
            get_constant(tuple((1.0 - beta**count) ** power for count in counts), dtype, device)
            for beta, power in zip(BETAS, (1.0, 0.5), strict=True)
        )
        first, root = first[:, None, None], root[:, None, None]
        scale = (self._rate * root).reciprocal_().mul_(first)  # factor of sqrt(v) below m
        offset = (first * self._epsilon).div_(self._rate)
        self._corrections = list(zip(scale.unbind(), offset.unbind(), strict=True))

    def step_(self, *gradients: Tensor) -> None:
        """Count a step and move all numbers along gradients [n, q] that make up Q side by side."""
        self.advance()
        torch.cat(gradients, 1, out=self._gradient)
        self.move_(slice(None), self._gradient)

    @functools.cached_property
    def _gradient(self) -> Tensor:
        """Memory for gradients side by side."""
        return torch.empty_like(self._rows)

    def move_(self, column_slice: slice, gradient: Tensor) -> None:
        """Move the selected columns along their gradient, within the step that was counted last."""
        m = self._m[:, column_slice].lerp_(gradient, 1.0 - BETAS[0])
        v = self._v[:, column_slice].mul_(BETAS[1])
        v.addcmul_(gradient, gradient, value=1.0 - BETAS[1])
        under = torch.sqrt(v, out=self._under[:, column_slice])
        # addcmul is slow if two of its three operands are broadcast
        under.mul_(self._scale).add_(self._offset)
        self._rows[:, column_slice].addcdiv_(m, under, value=-1.0)
