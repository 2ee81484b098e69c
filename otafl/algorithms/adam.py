"""Take steps of Adam on the gradient of a quadratic penalty, batched over rows.

References
----------
Kingma, Ba 2015, "Adam: A Method for Stochastic Optimization", Algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, column

BETAS = (0.9, 0.999)
EPSILON = 1e-8
"""Both are PyTorch's defaults."""

STEP = 12.0
"""Operations a number of a step: the first moment (3), the second (4), its root (1), with the
corrections for the start (2), the quotient and its subtraction (2)."""


class PenaltyAdam:
    """Moves blocks [n, *shape] in place by Adam, from gradients over lambda.

    m and v then lack lambda and lambda^2, and lambda m / (lambda sqrt(v) + eps) = m / (sqrt(v) +
    eps / lambda): but for eps, the penalty acts through theta alone.
    """

    def __init__(self, blocks: Blocks, rate: Tensor, penalty: Tensor) -> None:
        self._blocks, self._rate, self._epsilon = blocks, rate, EPSILON / penalty
        self._m = {name: torch.zeros_like(block) for name, block in blocks.items()}
        self._v = {name: torch.zeros_like(block) for name, block in blocks.items()}
        self._under = {name: torch.empty_like(block) for name, block in blocks.items()}
        self._count = 0
        self.tick(0)

    def tick(self, steps: int = 1) -> None:
        """Count steps: the moments start at zero, which is corrected for."""
        self._count += steps
        first, second = (1.0 - beta ** max(1, self._count) for beta in BETAS)
        self._scale = first / (self._rate * second**0.5)  # of sqrt(v), under m
        self._offset = first * self._epsilon / self._rate

    def step_(self, gradients: Blocks) -> None:
        """Count a step and move every block along its gradient."""
        self.tick()
        for name, gradient in gradients.items():
            self.move_(name, gradient)

    def move_(self, name: str, gradient: Tensor) -> None:
        """Move one block along its gradient, in the step that was counted last."""
        block, under = self._blocks[name], self._under[name]
        m = self._m[name].lerp_(gradient, 1.0 - BETAS[0])
        v = self._v[name].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1.0 - BETAS[1])
        torch.sqrt(v, out=under)
        scale, offset = column(self._scale, block), column(self._offset, block)
        block.addcdiv_(m, torch.addcmul(offset, under, scale, out=under), value=-1.0)
