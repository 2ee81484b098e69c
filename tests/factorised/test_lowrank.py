"""The fixed-rank manifold, in factors, against dense algebra (the facts are numbered as the
quantities of the FedRLR paper need them: projection (47), retraction (18)-(19), product (31)).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import fedrlr as twin

from otafl.factorised import lowrank
from otafl.factorised.lowrank import (
    LowRank,
    Tangent,
    compress,
    project,
    retract,
    to_dense,
    truncate,
)

pytestmark = pytest.mark.exact

F64 = torch.float64
SIZES = [(9, 7, 3), (12, 5, 4), (5, 5, 5)]
"""M, N, R: 2R below and above the smaller side, and full rank."""


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def some_point(m: int, n: int, r: int, rows: int = 4, dtype: torch.dtype = F64) -> LowRank:
    """Points of singular values 1, 1/2, 1/3, ..."""
    u = torch.linalg.qr(normal(rows, m, r, seed=1))[0]
    v = torch.linalg.qr(normal(rows, n, r, seed=2))[0]
    s = (1.0 / torch.arange(1, r + 1, dtype=F64)).expand(rows, r).clone()
    return LowRank(u.to(dtype), s.to(dtype), v.to(dtype))


def tangent_of(point: LowRank, g: Tensor) -> Tangent:
    return project(point, g @ point.v, g.mT @ point.u)


def dense_tangent(point: LowRank, xi: Tangent) -> Tensor:
    return point.u @ xi.h @ point.v.mT + xi.bu @ point.v.mT + point.u @ xi.bv.mT


def scaled(xi: Tangent, factor: float) -> Tangent:
    return Tangent(xi.h * factor, xi.bu * factor, xi.bv * factor)


def off_orthonormal(point: LowRank) -> float:
    one = torch.eye(point.s.shape[1], dtype=point.u.dtype)
    return max(float((basis.mT @ basis - one).abs().max()) for basis in (point.u, point.v))


@pytest.mark.parametrize(("m", "n", "r"), SIZES)
def test_projection_is_the_orthogonal_one(m: int, n: int, r: int) -> None:
    """Fact 3, and equality with eq. (47) written out dense."""
    point, g, other = some_point(m, n, r), normal(4, m, n), normal(4, m, n, seed=5)

    def p(matrix: Tensor) -> Tensor:
        return dense_tangent(point, tangent_of(point, matrix))

    for row in range(4):
        expected = twin.project(point.u[row].numpy(), point.v[row].numpy(), g[row].numpy())
        np.testing.assert_allclose(p(g)[row], expected, rtol=0, atol=1e-12)
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(p(p(g)), p(g), **close)
    torch.testing.assert_close((p(g) * other).sum((1, 2)), (g * p(other)).sum((1, 2)), **close)
    torch.testing.assert_close(p(to_dense(point)), to_dense(point), **close)
    assert ((g - p(g)) * p(other)).sum((1, 2)).abs().max() < 1e-12
    assert (p(g).norm(dim=(1, 2)) <= g.norm(dim=(1, 2)) + 1e-12).all()
    assert torch.linalg.matrix_rank(p(g), rtol=1e-10).max() <= 2 * r
    xi = tangent_of(point, g)
    assert (point.u.mT @ xi.bu).abs().max() < 1e-12
    assert (point.v.mT @ xi.bv).abs().max() < 1e-12


@pytest.mark.parametrize(("m", "n", "r"), SIZES)
def test_retraction_is_the_truncated_svd(m: int, n: int, r: int) -> None:
    """Fact 4: exact rank R, orthonormal factors, equal to a dense truncated SVD."""
    point = some_point(m, n, r)
    xi = scaled(tangent_of(point, normal(4, m, n)), 30.0)
    moved = retract([point], [xi])[0]
    assert moved.u.shape == (4, m, r)
    assert moved.v.shape == (4, n, r)
    assert off_orthonormal(moved) < 1e-12
    assert (moved.s > 0).all()
    assert (moved.s.diff(dim=1) <= 0).all()
    argument = (to_dense(point) + dense_tangent(point, xi)).numpy()
    for row in range(4):
        expected = twin.nearest(argument[row], r)
        error = np.linalg.norm(to_dense(moved)[row].numpy() - expected)
        assert error < 1e-10 * np.linalg.norm(expected)


@pytest.mark.parametrize("columns", [3, 12])
def test_compress_is_the_truncated_svd(columns: int) -> None:
    """Products of more columns than a side included."""
    left, right = normal(4, 9, columns), normal(4, 7, columns, seed=1)
    point = compress([left], [right], [3])[0]
    assert off_orthonormal(point) < 1e-12
    for row in range(4):
        expected = twin.nearest((left @ right.mT)[row].numpy(), 3)
        np.testing.assert_allclose(to_dense(point)[row], expected, rtol=0, atol=1e-11)


def test_truncate_and_its_norm() -> None:
    matrix = normal(4, 9, 7)
    plain, whole = truncate(matrix, 3), truncate(matrix, 3, rescale=True)
    for row in range(4):
        expected = twin.nearest(matrix[row].numpy(), 3)
        np.testing.assert_allclose(to_dense(plain)[row], expected, rtol=0, atol=1e-12)
    norm = matrix.norm(dim=(1, 2))
    torch.testing.assert_close(to_dense(whole).norm(dim=(1, 2)), norm, rtol=1e-12, atol=0)
    ratio = norm / to_dense(plain).norm(dim=(1, 2))
    torch.testing.assert_close(whole.s, plain.s * ratio[:, None], rtol=1e-12, atol=0)
    assert (ratio > 1.05).all()


def test_a_vanishing_singular_value_stays_at_the_floor() -> None:
    """A step that takes the last singular value to zero leaves it at 1e-12 of the first."""
    point = some_point(9, 7, 3)
    xi = Tangent(torch.zeros(4, 3, 3, dtype=F64), point.u * 0.0, point.v * 0.0)
    xi.h[:, 2, 2] = -point.s[:, 2]
    moved = retract([point], [xi])[0]
    torch.testing.assert_close(moved.s[:, 2], 1e-12 * moved.s[:, 0], rtol=1e-2, atol=0)
    torch.testing.assert_close(moved.s[:, :2], point.s[:, :2], rtol=1e-12, atol=0)


def test_a_projection_leaves_nothing_along_the_basis() -> None:
    random = torch.Generator().manual_seed(1)
    basis = torch.linalg.qr(torch.randn(2, 7, 3, generator=random, dtype=torch.float64))[0]
    thin = torch.randn(2, 7, 2, generator=random, dtype=torch.float64)
    rest = lowrank.project_out(basis, thin)
    torch.testing.assert_close(basis.mT @ rest, torch.zeros(2, 3, 2, dtype=torch.float64))
    torch.testing.assert_close(thin - rest, basis @ (basis.mT @ thin))
