"""Manifold of M x N matrices of rank R, in factors only, without dense matrices.

A point is Theta = U diag(s) V^T with orthonormal columns of U [n, M, R] and V [n, N, R], and s [n,
R] decreasing and positive. A tangent vector at it is U H V^T + B_U V^T + U B_V^T with U^T B_U = 0
and V^T B_V = 0. All functions are batched over n rows. Thin factors are stored so that their
transposes [n, R, M] are contiguous in memory, which makes products with them several times faster.

References
----------
Xue, Lau, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation" (FedRLR), section III and eqs. (14)-(19), (47).
Vandereycken 2013, "Low-Rank Matrix Completion by Riemannian Optimization".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from otafl.core.tensors import multiply_rows
from otafl.factorised.decomposition import (
    count_cholesky_flops,
    count_svd_flops,
    count_triangular_inverse_flops,
    svd,
    svd_of_full_rank,
    svd_of_layers,
)

SINGULAR_FLOOR = 1e-12
"""Smallest singular value relative to the largest, below which a point leaves the manifold."""

TINY = 1e-30
"""Term that keeps a Gram matrix of zeros invertible."""


class LowRank(NamedTuple):
    """Point Theta = u diag(s) v^T.

    Parameters
    ----------
    u : Tensor [n, M, R]
        Left singular vectors.
    s : Tensor [n, R]
        Singular values.
    v : Tensor [n, N, R]
        Right singular vectors.
    """

    u: Tensor
    s: Tensor
    v: Tensor


class Tangent(NamedTuple):
    """Tangent vector u h v^T + bu v^T + u bv^T at a point.

    Parameters
    ----------
    h : Tensor [n, R, R]
        Part within both spaces.
    bu : Tensor [n, M, R]
        Part orthogonal to u.
    bv : Tensor [n, N, R]
        Part orthogonal to v.
    """

    h: Tensor
    bu: Tensor
    bv: Tensor


class LowRankMap:
    """Weight of a low-rank point (`models.linear_layer.LinearMap`), for rows [n, ...].

    It keeps the thin products of the last passes, from which the factored gradient is computed.

    Parameters
    ----------
    point : LowRank
        The weight.

    Attributes
    ----------
    xu : Tensor [n, B, R], or None
        x U of the last forward pass.
    gv : Tensor [n, B, R], or None
        g V of the last backward pass.
    """

    def __init__(self, point: LowRank) -> None:
        self.point = point
        self.xu: Tensor | None = None
        self.gv: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        u, s, v = self.point
        self.xu = multiply_rows(x, u)
        return torch.bmm(self.xu * s[:, None], v.mT)

    def backward(self, g: Tensor) -> Tensor:
        u, s, v = self.point
        self.gv = torch.bmm(g, v)
        return torch.bmm(self.gv * s[:, None], u.mT)


def to_dense(point: LowRank) -> Tensor:
    """Compute the dense Theta [n, M, N], for tests and exports."""
    return torch.bmm(point.u * point.s[:, None], point.v.mT)


def project(point: LowRank, gv: Tensor, gtu: Tensor) -> Tangent:
    """Project G orthogonally on the tangent space, eq. (47).

    Parameters
    ----------
    point : LowRank
        Point.
    gv : Tensor [n, M, R]
        G V.
    gtu : Tensor [n, N, R]
        G^T U.

    Returns
    -------
    Tangent
        Projection.

    Notes
    -----
    .. math::

        P_T(G) = U U^T G + G V V^T - U U^T G V V^T
    """
    h = torch.bmm(point.u.mT, gv)
    return Tangent(
        h, _subtract_projection(gv, point.u, h), _subtract_projection(gtu, point.v, h.mT)
    )


def count_project_flops(rows: int, columns: int, rank: int) -> float:
    """Count the operations of `project` at a point of an M x N matrix."""
    sides = sum(side for side in (rows, columns) if side > rank)  # a square basis has no complement
    return 2.0 * rows * rank**2 + sides * (2.0 * rank**2 + rank)


def make_tangent(point: LowRank, a: Tensor, b: Tensor) -> Tangent:
    """Return the tangent vector a v^T + u b^T, for b orthogonal to v.

    Parameters
    ----------
    point : LowRank
        Point.
    a : Tensor [n, M, R]
        Factor beside v.
    b : Tensor [n, N, R]
        Factor beside u.

    Returns
    -------
    Tangent
        The vector.
    """
    h = point.u.mT @ a
    return Tangent(h, _subtract_projection(a, point.u, h), b)


def project_out(basis: Tensor, thin: Tensor) -> Tensor:
    """Remove the part of thin matrices in the span of a basis.

    Parameters
    ----------
    basis : Tensor [n, M, R]
        Orthonormal basis.
    thin : Tensor [n, M, Q]
        Matrices.

    Returns
    -------
    Tensor [n, M, Q]
        Part orthogonal to the basis.
    """
    return _subtract_projection(thin, basis, torch.bmm(basis.mT, thin))


def _subtract_projection(thin: Tensor, basis: Tensor, within: Tensor) -> Tensor:
    """Return thin - basis within, and exactly 0 for a square basis.

    For a square basis the difference is rounding within its span. If the smallest singular value is
    not larger than that, a retraction would rotate the basis into it.
    """
    if basis.shape[1] == basis.shape[2]:
        return torch.zeros_like(thin)
    return torch.baddbmm(thin.mT, within.mT, basis.mT, alpha=-1.0).mT


def multiply_thin(thin: Tensor, small: Tensor) -> Tensor:
    """Multiply thin [n, M, R] by small [n, R, Q], with the memory layout of thin factors."""
    return torch.bmm(small.mT, thin.mT).mT


def retract(points: Sequence[LowRank], steps: Sequence[Tangent]) -> list[LowRank]:
    """Retract tangent vectors to the manifold, eqs. (18), (19).

    Parameters
    ----------
    points : sequence of LowRank
        Points of several layers.
    steps : sequence of Tangent
        Tangent vectors xi at them.

    Returns
    -------
    list of LowRank
        Best rank-R approximation of Theta + xi.

    Notes
    -----
    The normal parts of xi are orthogonal to U and V, so the 2R x 2R core of [U Q_U] C [V Q_V]^T
    needs only bases of their own, B = Q T. T comes by Cholesky from the R x R Gram matrix, with a
    ridge of the size of rounding. The ridge changes Q only in directions that are rounding in B,
    which enter the result to second order. Q is never formed; B T^-1 replaces it.
    """
    by_rank: dict[int, list[int]] = {}
    for index, point in enumerate(points):
        by_rank.setdefault(point.s.shape[1], []).append(index)
    moved = dict[int, LowRank]()
    for chosen in by_rank.values():
        of = [points[i] for i in chosen], [steps[i] for i in chosen]
        moved |= zip(chosen, _retract_equal_ranks(*of), strict=True)
    return [moved[index] for index in range(len(points))]


def _retract_equal_ranks(points: Sequence[LowRank], steps: Sequence[Tangent]) -> list[LowRank]:
    """Retract points of one rank, with all small matrices [points x n, ...] in one batch."""
    layers, rank = len(points), points[0].s.shape[1]
    normals = [step.bu for step in steps] + [step.bv for step in steps]
    root, inverse = _factor_gram(torch.cat([torch.bmm(b.mT, b) for b in normals]))
    tu, tv = root.chunk(2)
    corner = torch.cat([step.h for step in steps])
    corner.diagonal(dim1=1, dim2=2).add_(torch.cat([point.s for point in points]))
    core = torch.cat([torch.cat([corner, tv.mT], 2), torch.cat([tu, torch.zeros_like(tu)], 2)], 1)
    a, s, bt = svd_of_full_rank(core)
    s = torch.maximum(s[:, :rank], SINGULAR_FLOOR * s[:, :1])
    turn = torch.cat([a[:, :, :rank], bt.mT[:, :, :rank]])
    along = turn[:, :rank].chunk(2 * layers)
    across = torch.bmm(inverse, turn[:, rank:]).chunk(2 * layers)
    bases = [point.u for point in points] + [point.v for point in points]
    moved = [
        torch.bmm(out.mT, normal.mT).baddbmm_(within.mT, basis.mT).mT
        for normal, out, basis, within in zip(normals, across, bases, along, strict=True)
    ]
    return [
        LowRank(u, sigma, v)
        for u, sigma, v in zip(moved[:layers], s.chunk(layers), moved[layers:], strict=True)
    ]


def count_retract_flops(sides: int, rank: int) -> float:
    """Count the operations of `retract` of one point with M + N sides.

    They are Gram matrices and moved bases, and of rank R two Cholesky factors, their inverses and
    products, and the core's singular vectors.
    """
    thin = sides * (6.0 * rank**2 + rank)
    small = count_cholesky_flops(rank) + count_triangular_inverse_flops(rank) + 2.0 * rank**3
    return thin + 2.0 * small + count_svd_flops(2 * rank)


def _factor_gram(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the upper triangular T [m, R, R] with T^T T = gram + ridge, and its inverse."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    ridge = diagonal.sum(1, keepdim=True).mul_(4.0 * torch.finfo(gram.dtype).eps)
    diagonal.add_(ridge.add_(TINY))
    root = torch.linalg.cholesky_ex(gram)[0].mT
    one = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    return root, torch.linalg.solve_triangular(root, one, upper=True)


def compress(
    left: Sequence[Tensor], right: Sequence[Tensor], ranks: Sequence[int]
) -> list[LowRank]:
    """Compute the best rank-R approximation of products of thin matrices, eq. (31).

    For a sum of low-rank matrices their factors are placed side by side, eq. (20).

    Parameters
    ----------
    left, right : sequence of Tensor [n, M, Q], [n, N, Q]
        Factors of left right^T for each layer.
    ranks : sequence of int
        Rank of each layer.

    Returns
    -------
    list of LowRank
        The approximations.
    """
    bases = [(torch.linalg.qr(a), torch.linalg.qr(b)) for a, b in zip(left, right, strict=True)]
    cores = svd_of_layers([torch.bmm(tu, tv.mT) for (_, tu), (_, tv) in bases])
    points = []
    for ((qu, _), (qv, _)), (p, s, qt), rank in zip(bases, cores, ranks, strict=True):
        u, v = multiply_thin(qu, p[:, :, :rank]), multiply_thin(qv, qt.mT[:, :, :rank])
        points.append(LowRank(u, s[:, :rank], v))
    return points


def truncate(matrix: Tensor, rank: int, rescale: bool = False) -> LowRank:
    """Compute the best rank-R approximation of a dense matrix.

    Parameters
    ----------
    matrix : Tensor [n, M, N]
        Matrix.
    rank : int
        Rank R.
    rescale : bool
        Whether to restore the Frobenius norm of the matrix.

    Returns
    -------
    LowRank
        The approximation.
    """
    u, s, vt = svd(matrix, full_matrices=False)
    kept = s[:, :rank]
    if rescale:
        kept = kept * (s.norm(dim=-1, keepdim=True) / kept.norm(dim=-1, keepdim=True))
    return LowRank(u[:, :, :rank].mT.contiguous().mT, kept, vt[:, :rank].contiguous().mT)


def reorthonormalise(point: LowRank) -> LowRank:
    """Take one Newton-Schulz step on U and V.

    It squares their distance from orthonormality. Rounding lets them drift by a few units in the
    last place a step.
    """
    return LowRank(_orthonormalise(point.u), point.s, _orthonormalise(point.v))


def count_reorthonormalise_flops(sides: int, rank: int) -> float:
    """Count the operations of `reorthonormalise` for M + N sides."""
    return 4.0 * sides * rank**2


def _orthonormalise(u: Tensor) -> Tensor:
    """Take one Newton-Schulz step on a basis."""
    gram = torch.bmm(u.mT, u)
    return torch.baddbmm(u.mT, gram, u.mT, beta=1.5, alpha=-0.5).mT
