"""Holds the quadratic programs over the simplex to the gap to their optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otafl.algorithms.personal.fedpac import RIDGE, solve_simplex_program

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("size", "scale"), [(1, 1.0), (3, 1e-12), (40, 1e8), (100, 1.0)])
def test_optimality_gap(size: int, scale: float) -> None:
    """The optimum is at least f(x) - (g.x - min g), g the gradient at x; what the gap may be beside
    1e-9 of f is the term that keeps Q definite. Variances from 1e-6 to 1, a part of rank 6."""
    generator = torch.Generator().manual_seed(size)
    h = torch.randn(8, size, 6, generator=generator, dtype=torch.float64)
    q = h @ h.mT + torch.diag_embed(
        10.0 ** (-6 * torch.rand(8, size, generator=generator, dtype=torch.float64))
    )
    q = q * scale
    x = torch.from_numpy(np.stack([solve_simplex_program(one) for one in q.numpy()]))
    assert (x >= 0).all()
    torch.testing.assert_close(x.sum(1), torch.ones(8, dtype=torch.float64))
    gradient = 2 * (q @ x[:, :, None])[:, :, 0]
    value = (gradient * x).sum(1) / 2
    gap = (gradient * x).sum(1) - gradient.amin(1)
    rounding = RIDGE * q.diagonal(dim1=1, dim2=2).amax(1)
    assert (gap <= 1e-9 * value + rounding).all()
