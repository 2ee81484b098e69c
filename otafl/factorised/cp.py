"""Tensors in CP (Kruskal) form, batched over rows.

X = [[A1, ..., AN]], X[i1..iN] = sum_r prod_n An[i_n, r]. A factor is stored transposed, [n, R,
I_n], so that its column r is contiguous in memory, as batched products need it. A tensor is stored
as its last unfolding, [n, I_1 ... I_(N-1), I_N] row-major, which is the layout of a model's
weights: [inputs, outputs] of a dense layer, [k k C, outputs] of a convolution with N = 4 modes k,
k, C, outputs.

The unfoldings are row-major (the last index runs fastest), so Khatri-Rao products go in ascending
order of the modes. Kolda and Bader 2009, "Tensor Decompositions and Applications", use the reverse
of both. Either pair is consistent; a mixture is wrong from three modes on. Equations are TDPFed's
(Wang, Jin, Liu, Zong, Shao, Li).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Factors = list[Tensor]
"""Factors A1, ..., AN, each [n, R, I_n]."""


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Compute the Khatri-Rao product.

    Parameters
    ----------
    factors : sequence of Tensor [n, R, I_m]
        Factors of several modes.

    Returns
    -------
    Tensor [n, R, prod I_m]
        Kronecker product of the factors' rows r, for each r.
    """
    out = factors[0]
    for factor in factors[1:]:
        out = (out[..., None] * factor[:, :, None]).flatten(2)
    return out


def kruskal(factors: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """Compute the tensor of CP factors.

    Parameters
    ----------
    factors : sequence of Tensor [n, R, I_n]
        Factors of all modes.
    out : Tensor, optional
        Memory for the result.

    Returns
    -------
    Tensor [n, I_1 ... I_(N-1), I_N]
        Last unfolding of [[A1, ..., AN]].
    """
    return torch.bmm(khatri_rao(factors[:-1]).mT, factors[-1], out=out)


def gram(factors: Sequence[Tensor], excluded: Sequence[int] = ()) -> Tensor:
    """Compute the Hadamard product [n, R, R] of the factors' Gram matrices, eq. (18).

    Parameters
    ----------
    factors : sequence of Tensor [n, R, I_n]
        Factors.
    excluded : sequence of int
        Modes to leave out.

    Returns
    -------
    Tensor [n, R, R]
        V of the included modes.
    """
    out = factors[0].new_ones(())
    for mode, factor in enumerate(factors):
        if mode not in excluded:
            out = out * torch.bmm(factor, factor.mT)
    return out


def compute_factor_gradients(
    target: Tensor, factors: Sequence[Tensor], out: Tensor | None = None
) -> Factors:
    """Compute the gradients of |target - [[A]]|^2 / 2 by every factor.

    Parameters
    ----------
    target : Tensor [n, I_1 ... I_(N-1), I_N]
        Tensor T as its last unfolding.
    factors : sequence of Tensor [n, R, I_n]
        Factors A.
    out : Tensor, optional
        Memory for the residual.

    Returns
    -------
    list of Tensor [n, R, I_n]
        Gradients.

    Notes
    -----
    Eq. (25) without lambda, with X = [[A]], H_n the Khatri-Rao product and V_n the Hadamard product
    of the Gram matrices of the other factors:

    .. math::

        A^{(n)} V_n - T_{(n)} H_n = (X - T)_{(n)} H_n

    The right side is computed. Measured on a CPU core, it is faster than the Gram matrices for a
    compression of 3 or less. It is exactly 0 if T is the result of `kruskal` for the same numbers,
    where Adam would turn rounding into full steps. Modes share partial contractions: three products
    with the whole tensor for any N.
    """
    ahead = khatri_rao(factors[:-1])
    residual = torch.bmm(ahead.mT, factors[-1], out=out).sub_(target)  # as `kruskal` makes it
    before = _contract_all_but_one(torch.bmm(factors[-1], residual.mT), factors[:-1])
    return [*before, torch.bmm(ahead, residual)]


def count_factor_gradients_flops(modes: Sequence[int], rank: int) -> float:
    """Count the operations of `compute_factor_gradients`.

    The residual takes 2 R + 1 per number of the tensor. The contractions take 2 R per number of the
    tensor, by the last mode and by all others, and then of the remaining tensors.
    """
    total = (6.0 * rank + 1.0) * math.prod(modes) + _count_khatri_rao_flops(modes[:-1], rank)
    for count in range(len(modes) - 1, 1, -1):  # the last remaining mode, and the modes before it
        total += 4.0 * rank * math.prod(modes[:count]) + _count_khatri_rao_flops(
            modes[: count - 1], rank
        )
    return total


def count_factor_gradient_flops(modes: Sequence[int], rank: int, mode: int) -> float:
    """Count the operations of the gradient by one factor.

    They are the residual, and its contractions with all modes after that one, then with all before.
    """
    total = (2.0 * rank + 1.0) * math.prod(modes) + _count_khatri_rao_flops(modes[:-1], rank)
    for count in range(len(modes), mode + 1, -1):
        total += 2.0 * rank * math.prod(modes[:count])
    if mode:
        total += 2.0 * rank * math.prod(modes[: mode + 1]) + _count_khatri_rao_flops(
            modes[:mode], rank
        )
    return total


def count_kruskal_flops(modes: Sequence[int], rank: int) -> float:
    """Count the operations of `kruskal`."""
    return 2.0 * rank * math.prod(modes) + _count_khatri_rao_flops(modes[:-1], rank)


def _count_khatri_rao_flops(modes: Sequence[int], rank: int) -> float:
    """Count the operations of `khatri_rao`."""
    return float(sum(rank * math.prod(modes[:count]) for count in range(2, len(modes) + 1)))


def _contract_all_but_one(u: Tensor, factors: Sequence[Tensor]) -> Factors:
    """Contract u [n, R, I_1 ... I_m], a tensor for each r, with all factors except one."""
    if len(factors) == 1:
        return [u]
    *front, last = factors
    at_last = _contract_first(u, khatri_rao(front), last.shape[2])
    return [*_contract_all_but_one(_contract_last(u, last), front), at_last]


def _contract_last(u: Tensor, last: Tensor) -> Tensor:
    """Contract u [n, R, J I] over its last mode with last [n, R, I], to [n, R, J]."""
    rows, size = u.shape[0] * u.shape[1], last.shape[2]
    return torch.bmm(u.reshape(rows, -1, size), last.reshape(rows, size, 1)).view(*u.shape[:2], -1)


def _contract_first(u: Tensor, ahead: Tensor, size: int) -> Tensor:
    """Contract u [n, R, J I] over its first modes with ahead [n, R, J], to [n, R, I]."""
    rows = u.shape[0] * u.shape[1]
    return torch.bmm(ahead.reshape(rows, 1, -1), u.reshape(rows, -1, size)).view(*u.shape[:2], -1)


def run_als(
    matrix: Tensor,
    start: Sequence[Tensor],
    sweeps: int = 50,
    change: float = 1e-6,
    ridge: float = 1e-10,
) -> tuple[Factors, Tensor]:
    """Find CP factors near a tensor by alternating least squares, in double precision.

    Parameters
    ----------
    matrix : Tensor [n, I_1 ... I_(N-1), I_N]
        Tensor as its last unfolding.
    start : sequence of Tensor [n, R, I_n]
        Factors of the start.
    sweeps : int
        Largest number of sweeps over all factors.
    change : float
        Relative change of the residual below which a row stops. No sweep increases the residual.
    ridge : float
        Tikhonov term, relative to the diagonal of V_n.

    Returns
    -------
    list of Tensor [n, R, I_n]
        Factors.
    Tensor [n]
        Their relative residual.
    """
    target = matrix.double()
    total = target.square().sum((1, 2)).clamp_min(torch.finfo(torch.float64).tiny)
    factors = [factor.double() for factor in start]
    best = _relative_residual(target, factors, total)
    running = torch.ones_like(best, dtype=torch.bool)

    for _ in range(sweeps):
        moved = _sweep(target, factors, ridge)
        now = _relative_residual(target, moved, total)
        take = running & (now <= best)
        factors = [
            torch.where(take[:, None, None], b, a) for a, b in zip(factors, moved, strict=True)
        ]
        running = take & (best - now > change * best)
        best = torch.where(take, now, best)
        if not running.any():
            break
    return [factor.to(matrix.dtype) for factor in factors], best.to(matrix.dtype)


def _sweep(matrix: Tensor, factors: Factors, ridge: float) -> Factors:
    """Solve for each factor in turn, with the new values of the factors before it."""
    new = list(factors)
    u = torch.bmm(new[-1], matrix.mT)  # the last factor is the last to change
    for mode, factor in enumerate(new):
        if mode == len(new) - 1:
            products = torch.bmm(khatri_rao(new[:-1]), matrix)
        else:
            products = u
            for other in new[-2:mode:-1]:
                products = _contract_last(products, other)
            if mode:
                products = _contract_first(products, khatri_rao(new[:mode]), factor.shape[2])
        v = gram(new, (mode,))
        diagonal = v.diagonal(dim1=1, dim2=2)
        diagonal.add_(diagonal.mean(1, keepdim=True).mul(ridge).clamp_min(1e-300))
        new[mode] = torch.cholesky_solve(products, torch.linalg.cholesky_ex(v)[0])
    return new


def _relative_residual(target: Tensor, factors: Sequence[Tensor], total: Tensor) -> Tensor:
    """Compute |target - [[A]]| / |target|, [n]."""
    return ((target - kruskal(factors)).square().sum((1, 2)) / total).sqrt()


def compute_rank(modes: Sequence[int], compression_rate: float) -> int:
    """Compute the rank for a compression rate, eqs. (23), (24).

    Parameters
    ----------
    modes : sequence of int
        Sizes I_1, ..., I_N.
    compression_rate : float
        Weights over coordinates of the factors.

    Returns
    -------
    int
        Rank R with which prod I_n weights become R sum I_n coordinates, at least 1.
    """
    return max(1, round(math.prod(modes) / (compression_rate * sum(modes))))


def largest_rank(modes: Sequence[int]) -> int:
    """Return a rank that represents every tensor of these modes.

    It is the smallest product of all modes except one; for a matrix, its smaller side.
    """
    return math.prod(modes) // max(modes)


def count_coordinates(modes: Sequence[int], rank: int) -> int:
    """Count the coordinates of the factors, Q = R sum I_n."""
    return rank * sum(modes)


def start_deviation(fan_in: int, rank: int, modes: int) -> float:
    """Compute the standard deviation of a factor's entries at the start.

    Parameters
    ----------
    fan_in : int
        Inputs of an output of the layer.
    rank : int
        Rank R.
    modes : int
        Number of modes, N.

    Returns
    -------
    float
        Deviation sigma_A with which the entries of [[A]] have He's variance 2 / fan_in = R
        sigma_A^(2N), for independent normal factors.
    """
    return (2.0 / fan_in / rank) ** (1.0 / (2 * modes))
