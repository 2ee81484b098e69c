"""Move on the manifold of M x N matrices of rank R, in factors only: no dense array is made.

A point is Theta = U diag(s) V^T with U [n, M, R] and V [n, N, R] of orthonormal columns and s
[n, R] decreasing and positive. A tangent vector at it is U H V^T + B_U V^T + U B_V^T with U^T
B_U = 0 and V^T B_V = 0. All functions are batched over n rows. Thin factors are kept so that their
transposes are contiguous in memory ([n, R, M]), which makes products with them several times faster
than the other way round.

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

from otafl.factorised.decomposition import (
    count_cholesky_flops,
    count_svd_flops,
    count_triangular_inverse_flops,
    svd,
)

SINGULAR_FLOOR = 1e-12
"""Smallest singular value kept, relative to the largest: below it a point leaves the manifold."""

TINY = 1e-30


class LowRank(NamedTuple):
    """Hold Theta = u diag(s) v^T. u: [n, M, R], s: [n, R], v: [n, N, R]."""

    u: Tensor
    s: Tensor
    v: Tensor


class Tangent(NamedTuple):
    """Hold u h v^T + bu v^T + u bv^T at a point. h: [n, R, R], bu: [n, M, R], bv: [n, N, R]."""

    h: Tensor
    bu: Tensor
    bv: Tensor


class LowRankMap:
    """Acts as a weight (`models.layered.LinearMap`) by a point, for rows [n, ...]. It keeps the
    thin products of the last passes, which are the factored gradient's ingredients: xu = x U [n, B,
    R] and gv = g V [n, B, R]."""

    def __init__(self, point: LowRank) -> None:
        self.point = point
        self.xu: Tensor | None = None
        self.gv: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        u, s, v = self.point
        self.xu = torch.bmm(x.expand(u.shape[0], -1, -1), u)
        return torch.bmm(self.xu * s[:, None], v.mT)

    def backward(self, g: Tensor) -> Tensor:
        u, s, v = self.point
        self.gv = torch.bmm(g, v)
        return torch.bmm(self.gv * s[:, None], u.mT)


def to_dense(point: LowRank) -> Tensor:
    """Return Theta itself [n, M, N]: for tests and exports, never in a round."""
    return torch.bmm(point.u * point.s[:, None], point.v.mT)


def project(point: LowRank, gv: Tensor, gtu: Tensor) -> Tangent:
    """Project G orthogonally on the tangent space, from gv = G V [n, M, R] and gtu = G^T U [n, N,
    R] alone (eq. 47)."""
    h = torch.bmm(point.u.mT, gv)
    return Tangent(
        h, _subtract_projection(gv, point.u, h), _subtract_projection(gtu, point.v, h.mT)
    )


def count_project_flops(rows: int, columns: int, rank: int) -> float:
    """Count the operations of `project` at a point of an M x N matrix."""
    sides = sum(side for side in (rows, columns) if side > rank)  # a square basis leaves nothing
    return 2.0 * rows * rank**2 + sides * (2.0 * rank**2 + rank)


def project_out(basis: Tensor, thin: Tensor) -> Tensor:
    """Return what the orthonormal basis [n, M, R] does not span of thin [n, M, Q]."""
    return _subtract_projection(thin, basis, torch.bmm(basis.mT, thin))


def _subtract_projection(thin: Tensor, basis: Tensor, within: Tensor) -> Tensor:
    """Return thin - basis within, what the basis does not span; nothing where the basis is square.
    There the difference would be rounding that lies all in its span, and where the smallest
    singular value is no larger than that, a retraction would turn the basis into it."""
    if basis.shape[1] == basis.shape[2]:
        return torch.zeros_like(thin)
    return torch.baddbmm(thin.mT, within.mT, basis.mT, alpha=-1.0).mT


def multiply_thin(thin: Tensor, small: Tensor) -> Tensor:
    """Multiply thin [n, M, R] by small [n, R, Q]; the product is kept as thin factors are."""
    return torch.bmm(small.mT, thin.mT).mT


def retract(points: Sequence[LowRank], steps: Sequence[Tangent]) -> list[LowRank]:
    """Return the best rank-R approximation of Theta + xi for each point and tangent vector xi (eqs.
    18-19).

    The normal parts of xi are orthogonal to U and V already, so the 2R x 2R core of
    [U Q_U] C [V Q_V]^T needs only their own bases, B = Q T. These come by Cholesky from the R x R
    Gram matrices, with a ridge of rounding size: it bends Q only in directions that are rounding in
    B, which enter the result to second order. Q is never formed, B T^-1 acts in its place.
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
    """Retract points of one rank: all small matrices, [points x n, ...], go in one batch."""
    layers, rank = len(points), points[0].s.shape[1]
    normals = [step.bu for step in steps] + [step.bv for step in steps]
    root, inverse = _factor_gram(torch.cat([torch.bmm(b.mT, b) for b in normals]))
    tu, tv = root.chunk(2)
    corner = torch.cat([step.h for step in steps])
    corner.diagonal(dim1=1, dim2=2).add_(torch.cat([point.s for point in points]))
    core = torch.cat([torch.cat([corner, tv.mT], 2), torch.cat([tu, torch.zeros_like(tu)], 2)], 1)
    a, s, bt = svd(core)
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
    """Count the operations of `retract` of one point, M + N sides: Gram matrices, the moved bases;
    and of rank R two Cholesky factors, their inverses and products, and the core's singular
    vectors."""
    thin = sides * (6.0 * rank**2 + rank)
    small = count_cholesky_flops(rank) + count_triangular_inverse_flops(rank) + 2.0 * rank**3
    return thin + 2.0 * small + count_svd_flops(2 * rank)


def _factor_gram(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the upper triangular T [m, R, R] with T^T T = gram + ridge, and its inverse."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    ridge = diagonal.sum(1, keepdim=True).mul_(4.0 * torch.finfo(gram.dtype).eps)
    diagonal.add_(ridge.add_(TINY))
    root = torch.linalg.cholesky_ex(gram)[0].mT
    one = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    return root, torch.linalg.solve_triangular(root, one, upper=True)


def compress(
    left: Sequence[Tensor], right: Sequence[Tensor], ranks: Sequence[int]
) -> list[LowRank]:
    """Return the best rank-R approximation of left right^T for each left [n, M, Q] and right [n, N,
    Q] (eq. 31; for a sum of low-rank matrices stack their factors side by side, eq. 20)."""
    bases, cores = [], []
    for a, b in zip(left, right, strict=True):
        qu, tu = torch.linalg.qr(a)
        qv, tv = torch.linalg.qr(b)
        bases.append((qu, qv))
        cores.append(torch.bmm(tu, tv.mT))
    points = []
    for (qu, qv), (a, s, b), rank in zip(bases, _decompose_by_size(cores), ranks, strict=True):
        u, v = multiply_thin(qu, a[:, :, :rank]), multiply_thin(qv, b[:, :, :rank])
        points.append(LowRank(u, s[:, :rank], v))
    return points


def truncate(matrix: Tensor, rank: int, rescale: bool = False) -> LowRank:
    """Return the best rank-R approximation of a dense matrix [n, M, N], to start from; `rescale`
    restores the Frobenius norm that truncation took."""
    u, s, vt = svd(matrix, full_matrices=False)
    kept = s[:, :rank]
    if rescale:
        kept = kept * (s.norm(dim=-1, keepdim=True) / kept.norm(dim=-1, keepdim=True))
    return LowRank(u[:, :, :rank].mT.contiguous().mT, kept, vt[:, :rank].contiguous().mT)


def reorthonormalise(point: LowRank) -> LowRank:
    """Take one Newton-Schulz step on U and V, which squares their distance from orthonormality:
    rounding lets them drift by a few units in the last place a step."""
    return LowRank(_orthonormalise(point.u), point.s, _orthonormalise(point.v))


def count_reorthonormalise_flops(sides: int, rank: int) -> float:
    """Count the operations of `reorthonormalise`, M + N sides."""
    return 4.0 * sides * rank**2


def _orthonormalise(u: Tensor) -> Tensor:
    gram = torch.bmm(u.mT, u)
    return torch.baddbmm(u.mT, gram, u.mT, beta=1.5, alpha=-0.5).mT


def _decompose_by_size(cores: Sequence[Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return left vectors, values and right vectors of each [n, r, r] core; one call for each
    size."""
    sizes: dict[torch.Size, list[int]] = {}
    for index, core in enumerate(cores):
        sizes.setdefault(core.shape, []).append(index)
    out = dict[int, tuple[Tensor, Tensor, Tensor]]()
    for chosen in sizes.values():
        a, s, bt = svd(torch.cat([cores[i] for i in chosen]))
        count = len(chosen)
        parts = zip(a.chunk(count), s.chunk(count), bt.mT.chunk(count), strict=True)
        out |= zip(chosen, parts, strict=True)
    return [out[index] for index in range(len(cores))]
