"""Holds the quadratic programs over the simplex against SciPy, and to the gap to their optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

from otafl.algorithms.personal.fedpac import RIDGE, solve_simplex_program

pytestmark = pytest.mark.exact


def test_programs_against_scipy() -> None:
    generator = np.random.default_rng(4)
    for size in (2, 5, 12):
        factor = generator.standard_normal((6, size, 3))
        q = factor @ factor.transpose(0, 2, 1)
        q += np.eye(size) * generator.uniform(1e-3, 0.5, (6, size, 1))
        for inside in q:
            x = solve_simplex_program(inside)
            assert (x >= 0).all()
            assert x.sum() == pytest.approx(1.0, rel=1e-12)
            found = scipy.optimize.minimize(
                lambda v, m=inside: v @ m @ v,
                np.full(size, 1 / size),
                jac=lambda v, m=inside: 2 * m @ v,
                bounds=[(0, 1)] * size,
                constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            assert x @ inside @ x <= found.fun * (1 + 1e-9)
            np.testing.assert_allclose(x, found.x, atol=2e-5)


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
    gradient = 2 * (q @ x[:, :, None])[:, :, 0]
    value = (gradient * x).sum(1) / 2
    gap = (gradient * x).sum(1) - gradient.amin(1)
    rounding = RIDGE * q.diagonal(dim1=1, dim2=2).amax(1)
    assert (gap <= 1e-9 * value + rounding).all()
