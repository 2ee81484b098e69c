"""Approximate message passing with soft thresholding: a sparse x from y = A x + noise.

Donoho, Maleki, Montanari 2009, "Message-passing algorithms for compressed sensing", eqs. (1)-(2).
A is m x n with columns of mean square norm 1. Each step sees r = x + A^T z, which for a Gaussian A
is the truth plus Gaussian noise of variance tau^2, estimated as |z|^2 / m, and the error follows
state evolution: tau_{t+1}^2 = sigma^2 + (n/m) E[(soft(X + tau_t Z, a tau_t) - X)^2].
"""

from __future__ import annotations

import torch
from torch import Tensor


def soft(r: Tensor, threshold: Tensor) -> Tensor:
    """sgn(r) max(|r| - threshold, 0)."""
    return r - r.clamp(-threshold, threshold)


def amp_step(y: Tensor, x: Tensor, z: Tensor, matrix: Tensor, a: float) -> tuple[Tensor, Tensor]:
    """One step from the estimate x [..., n] and the residual z [..., m] to the next ones."""
    m = y.shape[-1]
    tau = torch.linalg.vector_norm(z, dim=-1, keepdim=True) / m**0.5
    x = soft(x + z @ matrix, a * tau)
    onsager = torch.count_nonzero(x, dim=-1)[..., None].to(z.dtype) / m
    return x, y - x @ matrix.mT + z * onsager


def amp(y: Tensor, matrix: Tensor, iterations: int, a: float) -> Tensor:
    """x [..., n] from measurements y [..., m] by the matrix [m, n]: of so many steps from x = 0,
    the estimate with the smallest |y - A x|. Where the measurements are too few for what is sent,
    the steps diverge, and it is one of the first."""
    x, z = y.new_zeros(*y.shape[:-1], matrix.shape[1]), y
    best, least = x, torch.linalg.vector_norm(y, dim=-1, keepdim=True)
    for _ in range(iterations):
        x, z = amp_step(y, x, z, matrix, a)
        misfit = torch.linalg.vector_norm(y - x @ matrix.mT, dim=-1, keepdim=True)
        better = misfit < least
        best, least = x.where(better, best), misfit.where(better, least)
    return best
