"""Take steps of Adam on the gradient of a quadratic penalty, row by row.

References
----------
Kingma, Ba 2015, "Adam: A Method for Stochastic Optimization", Algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8
"""Both are PyTorch's defaults."""

STEP = 12.0
"""Operations a number of a step: the first moment (3), the second (4), its root (1), with the
corrections for the start (2), the quotient and its subtraction (2)."""


class PenaltyAdam:
    """Moves rows of numbers [n, Q] in place by Adam, from gradients over lambda.

    m and v then lack lambda and lambda^2, and lambda m / (lambda sqrt(v) + eps) = m / (sqrt(v) +
    eps / lambda): but for eps, the penalty acts through theta alone.

    rows : [n, Q]. rate, penalty : [n], the step and lambda of each.
    """

    def __init__(self, rows: Tensor, rate: Tensor, penalty: Tensor) -> None:
        self._rows, self._compute_rate = rows, rate[:, None]
        self._compute_epsilon = EPSILON / penalty[:, None]
        self._m, self._v = torch.zeros_like(rows), torch.zeros_like(rows)
        self._under = torch.empty_like(rows)
        self._count = 0

    def advance(self) -> None:
        """Count a step: the moments start at zero, which is corrected for."""
        self._count += 1
        first, second = (1.0 - beta**self._count for beta in BETAS)
        self._scale = first / (self._compute_rate * second**0.5)  # of sqrt(v), under m
        self._offset = first * self._compute_epsilon / self._compute_rate

    def step_(self, gradient: Tensor) -> None:
        """Count a step and move all numbers along the gradient [n, Q]."""
        self.advance()
        self.move_(slice(None), gradient)

    def move_(self, column_slice: slice, gradient: Tensor) -> None:
        """Move some numbers of each row along their gradient, in the step that was counted last."""
        m = self._m[:, column_slice].lerp_(gradient, 1.0 - BETAS[0])
        v = self._v[:, column_slice].mul_(BETAS[1])
        v.addcmul_(gradient, gradient, value=1.0 - BETAS[1])
        under = torch.sqrt(v, out=self._under[:, column_slice])
        # not by addcmul, which is slow where two of its three operands are broadcast
        under.mul_(self._scale).add_(self._offset)
        self._rows[:, column_slice].addcdiv_(m, under, value=-1.0)
