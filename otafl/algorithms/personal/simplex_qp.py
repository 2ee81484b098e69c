"""Quadratic programs over the probability simplex, many small ones at once.

    minimise x^T Q x   over   x >= 0, sum_j x_j = 1,   x_j = 0 for absent j

Mehrotra's predictor-corrector interior-point method solves them, with a fixed number of iterations
for all programs. One Cholesky factorisation of Q + diag(z / x) serves both right-hand sides.

References
----------
Nocedal, Wright 2006, "Numerical Optimization", 2nd edition, algorithm 16.4.
"""

from __future__ import annotations

import torch
from torch import Tensor

ITERATIONS = 25
"""Iterations of every program."""
_TOLERANCE = 1e-12
"""Duality gap relative to the value, at which a program stops."""
_NUMBERS_AT_ONCE = 1 << 24
"""Numbers in the matrices that are factorised together."""


def solve_programs(q: Tensor, present: Tensor) -> Tensor:
    """Solve the programs in double precision.

    Parameters
    ----------
    q : Tensor [n, K, K]
        Symmetric, positive semidefinite matrices.
    present : Tensor, bool [n, K]
        Coordinates that can be above 0, at least one in each program.

    Returns
    -------
    Tensor [n, K]
        Minimisers x.
    """
    size = max(1, _NUMBERS_AT_ONCE // q.shape[-1] ** 2)
    parts = [_solve(*part) for part in zip(q.split(size), present.split(size), strict=True)]
    return torch.cat(parts).to(q.dtype)


def _solve(q: Tensor, present: Tensor) -> Tensor:
    """Iterate; absent coordinates are left out of the sum and cost x_j^2, so that they go to 0."""
    a = present.double()
    q = q.double() * a[:, :, None] * a[:, None, :]
    q = q / q.diagonal(dim1=1, dim2=2).amax(1).clamp_min(1e-300)[:, None, None]
    q = q + torch.diag_embed(1.0 - a)
    x = torch.ones_like(a) / a.sum(1, keepdim=True)
    z, y = torch.ones_like(a), torch.zeros_like(a[:, :1])
    for _ in range(ITERATIONS):
        moved = _take_newton_step(q, a, x, z, y)
        value = (x * (q @ x[:, :, None]).squeeze(2)).sum(1, keepdim=True)
        go = (x * z).sum(1, keepdim=True) > _TOLERANCE * value + 1e-30
        go &= moved[0].isfinite().all(1, keepdim=True)  # rounding can make it indefinite
        x, z, y = (torch.where(go, new, old) for new, old in zip(moved, (x, z, y), strict=True))
    x = x * a
    return x / x.sum(1, keepdim=True)


def _take_newton_step(
    q: Tensor, a: Tensor, x: Tensor, z: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take a step from (x, z, y) towards Q x - a y - z = 0, a^T x = 1, x z = 0.

    The predictor solves these to first order. The corrector adds centring and the second-order term
    that the predictor estimates.
    """
    dual = (q @ x[:, :, None]).squeeze(2) - a * y - z
    primal = 1.0 - (a * x).sum(1, keepdim=True)
    factor, _ = torch.linalg.cholesky_ex(q + torch.diag_embed(z / x))
    by_sum = torch.cholesky_solve(a[:, :, None], factor).squeeze(2)

    def solve_direction(product: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the step towards x z = x z + product."""
        along = torch.cholesky_solve((product / x - dual)[:, :, None], factor).squeeze(2)
        dy = (primal - (a * along).sum(1, keepdim=True)) / (a * by_sum).sum(1, keepdim=True)
        dx = along + by_sum * dy
        return dx, (product - z * dx) / x, dy

    dx, dz, _ = solve_direction(-x * z)
    step = _find_longest_step(x, dx, z, dz)
    mean = (x * z).mean(1, keepdim=True)
    foretold = ((x + step * dx) * (z + step * dz)).mean(1, keepdim=True)
    centre = (foretold / mean) ** 3 * mean
    dx, dz, dy = solve_direction(centre - x * z - dx * dz)
    step = 0.99 * _find_longest_step(x, dx, z, dz)
    return x + step * dx, z + step * dz, y + step * dy


def _find_longest_step(x: Tensor, dx: Tensor, z: Tensor, dz: Tensor) -> Tensor:
    """Compute the longest step, at most 1, at which no coordinate becomes negative, [n, 1]."""
    both, along = torch.cat([x, z], 1), torch.cat([dx, dz], 1)
    limits = torch.where(along < 0, -both / along, torch.inf)
    return limits.amin(1, keepdim=True).clamp(max=1.0)
