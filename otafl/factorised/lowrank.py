"""The manifold of M x N matrices of rank R, in factors only: no dense M x N array is ever made.

A point is Theta = U diag(s) V^T with U [n, M, R] and V [n, N, R] of orthonormal columns and s
[n, R] decreasing and positive. A tangent vector at it is U H V^T + B_U V^T + U B_V^T with U^T
B_U = 0 and V^T B_V = 0. All functions are batched over n rows. Source: Xue and Lau, FedRLR,
section III and eqs. (14)-(19), (47); Vandereycken 2013, "Low-rank matrix completion by
Riemannian optimization".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

SINGULAR_FLOOR = 1e-12
"""Smallest singular value kept, relative to the largest: below it a point leaves the manifold."""

TINY = 1e-30


class LowRank(NamedTuple):
    """Theta = u diag(s) v^T. u: [n, M, R], s: [n, R], v: [n, N, R]."""

    u: Tensor
    s: Tensor
    v: Tensor


class Tangent(NamedTuple):
    """u h v^T + bu v^T + u bv^T at a point. h: [n, R, R], bu: [n, M, R], bv: [n, N, R]."""

    h: Tensor
    bu: Tensor
    bv: Tensor


class LowRankMap:
    """A point acting as a weight (`models.base.LinearMap`) for rows [n, ...]. It keeps the thin
    products of the last passes, which are the factored gradient's ingredients: xu = x U [n, B, R]
    and gv = g V [n, B, R]."""

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


def dense(point: LowRank) -> Tensor:
    """Theta itself [n, M, N]: for tests and exports, never in a round."""
    return torch.bmm(point.u * point.s[:, None], point.v.mT)


def project(point: LowRank, gv: Tensor, gtu: Tensor) -> Tangent:
    """Orthogonal projection of G on the tangent space, from gv = G V [n, M, R] and gtu = G^T U
    [n, N, R] alone (eq. 47)."""
    h = torch.bmm(point.u.mT, gv)
    bu = torch.baddbmm(gv, point.u, h, alpha=-1.0)
    return Tangent(h, bu, torch.baddbmm(gtu, point.v, h.mT, alpha=-1.0))


def retract(points: Sequence[LowRank], steps: Sequence[Tangent]) -> list[LowRank]:
    """Best rank-R approximation of Theta + xi for each point and tangent vector xi (eqs. 18-19).

    The normal parts of xi are orthogonal to U and V already, so the 2R x 2R core of
    [U Q_U] C [V Q_V]^T needs only their own bases, B = Q T. These come by Cholesky from the R x R
    Gram matrices, with a ridge of rounding size: it bends Q only in directions that are rounding in
    B, which enter the result to second order. Q is never formed, B T^-1 acts in its place.
    """
    normals = [b for step in steps for b in (step.bu, step.bv)]
    roots = _by_size(_gram_root, [torch.bmm(b.mT, b) for b in normals])
    cores = [
        _core(point.s, step.h, left[0], right[0])
        for point, step, left, right in zip(points, steps, roots[::2], roots[1::2], strict=True)
    ]
    moved = []
    for point, step, left, right, (a, s, b) in zip(
        points, steps, roots[::2], roots[1::2], _by_size(_svd, cores), strict=True
    ):
        rank = point.s.shape[1]
        s = s[:, :rank]
        moved.append(
            LowRank(
                _moved(point.u, step.bu, left[1], a[:, :, :rank]),
                torch.maximum(s, SINGULAR_FLOOR * s[:, :1]),
                _moved(point.v, step.bv, right[1], b[:, :, :rank]),
            )
        )
    return moved


def _gram_root(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Upper triangular T [m, R, R] with T^T T = gram + ridge, and its inverse."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    ridge = diagonal.sum(1, keepdim=True).mul_(4.0 * torch.finfo(gram.dtype).eps)
    diagonal.add_(ridge.add_(TINY))
    root = torch.linalg.cholesky_ex(gram)[0].mT
    one = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    return root, torch.linalg.solve_triangular(root, one, upper=True)


def _core(s: Tensor, h: Tensor, tu: Tensor, tv: Tensor) -> Tensor:
    """[[diag(s) + h, tv^T], [tu, 0]], [n, 2R, 2R]."""
    upper = torch.cat([h + torch.diag_embed(s), tv.mT], 2)
    return torch.cat([upper, torch.cat([tu, torch.zeros_like(tu)], 2)], 1)


def _moved(basis: Tensor, normal: Tensor, inverse: Tensor, a: Tensor) -> Tensor:
    """basis a_1 + normal T^-1 a_2 for a = [a_1; a_2] [n, 2R, R]."""
    rank = basis.shape[2]
    along = torch.bmm(normal, torch.bmm(inverse, a[:, rank:]))
    return along.baddbmm_(basis, a[:, :rank])


def compress(
    left: Sequence[Tensor], right: Sequence[Tensor], ranks: Sequence[int]
) -> list[LowRank]:
    """Best rank-R approximation of left right^T for each left [n, M, Q] and right [n, N, Q]
    (eq. 31; for a sum of low-rank matrices stack their factors side by side, eq. 20)."""
    bases, cores = [], []
    for a, b in zip(left, right, strict=True):
        qu, tu = torch.linalg.qr(a)
        qv, tv = torch.linalg.qr(b)
        bases.append((qu, qv))
        cores.append(torch.bmm(tu, tv.mT))
    points = []
    for (qu, qv), (a, s, b), rank in zip(bases, _by_size(_svd, cores), ranks, strict=True):
        u, v = torch.bmm(qu, a[:, :, :rank]), torch.bmm(qv, b[:, :, :rank])
        points.append(LowRank(u, s[:, :rank], v))
    return points


def truncate(matrix: Tensor, rank: int, rescale: bool = False) -> LowRank:
    """Best rank-R approximation of a dense matrix [n, M, N], to start from; `rescale` restores
    the Frobenius norm that truncation took."""
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    kept = s[:, :rank]
    if rescale:
        kept = kept * (s.norm(dim=-1, keepdim=True) / kept.norm(dim=-1, keepdim=True))
    return LowRank(u[:, :, :rank], kept, vt.mT[:, :, :rank])


def reorthonormalise(point: LowRank) -> LowRank:
    """One Newton-Schulz step on U and V, which squares their distance from orthonormality: rounding
    lets them drift by a few units in the last place a step."""
    return LowRank(_orthonormal(point.u), point.s, _orthonormal(point.v))


def _orthonormal(u: Tensor) -> Tensor:
    return torch.baddbmm(u, u, torch.bmm(u.mT, u), beta=1.5, alpha=-0.5)


def _svd(core: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Left vectors, values, right vectors."""
    a, s, bt = torch.linalg.svd(core, full_matrices=False)
    return a, s, bt.mT


def _by_size(function: Callable[[Tensor], Any], matrices: Sequence[Tensor]) -> list[Any]:
    """function of each [n, r, r] matrix, all of one size in one batched call."""
    out: list[Any] = [None] * len(matrices)
    groups: dict[torch.Size, list[int]] = {}
    for index, matrix in enumerate(matrices):
        groups.setdefault(matrix.shape, []).append(index)
    for indices in groups.values():
        result = function(torch.cat([matrices[i] for i in indices]))
        columns = result if isinstance(result, tuple) else (result,)
        split = zip(*(column.chunk(len(indices)) for column in columns), strict=True)
        for index, parts in zip(indices, split, strict=True):
            out[index] = parts if isinstance(result, tuple) else parts[0]
    return out
