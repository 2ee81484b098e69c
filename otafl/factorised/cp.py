"""Calculate with tensors in CP (Kruskal) form, batched over rows.

X = [[A1, ..., AN]], X[i1..iN] = sum_r prod_n An[i_n, r]. A factor is held transposed, [n, R, I_n]:
a row r of it lies together in memory, where batched products want it. A tensor is held as its last
matrix, [n, I_1 ... I_(N-1), I_N] row-major, which is how the weights of a model lie: a dense
layer's [inputs, outputs], a convolution's [k k C, outputs] with N = 4 modes k, k, C, outputs.

The unfoldings are row-major (the last index runs fastest), so Khatri-Rao products go in ascending
order of the modes. Kolda and Bader 2009, "Tensor Decompositions and Applications", write both the
other way round; either pair is right, a mixture is wrong from three modes on. Equations are
TDPFed's (Wang, Jin, Liu, Zong, Shao, Li).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Factors = list[Tensor]
"""A1 .. AN, each [n, R, I_n]."""


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Return [n, R, prod I_m], whose row r is the Kronecker product of the factors' rows r."""
    out = factors[0]
    for factor in factors[1:]:
        out = (out[..., None] * factor[:, :, None]).flatten(2)
    return out


def kruskal(factors: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """Return the tensor [[A1, ..., AN]] as its last matrix, in new memory or over `out`."""
    return torch.bmm(khatri_rao(factors[:-1]).mT, factors[-1], out=out)


def gram(factors: Sequence[Tensor], excluded: Sequence[int] = ()) -> Tensor:
    """Return the Hadamard product [n, R, R] of the factors' Gram matrices, some left out; eq.
    (18)."""
    out = factors[0].new_ones(())
    for mode, factor in enumerate(factors):
        if mode not in excluded:
            out = out * torch.bmm(factor, factor.mT)
    return out


def compute_factor_gradients(
    target: Tensor, factors: Sequence[Tensor], out: Tensor | None = None
) -> Factors:
    """Return the gradients of |target - [[A]]|^2 / 2 by every factor, [n, R, I_n].

    TDPFed's eq. (25) without lambda, -T_(n) H_n + An Vn, in the form (X - T)_(n) H_n, which is the
    same since X_(n) H_n = An Vn: measured on a CPU core, the residual is faster than the Gram
    matrices from a compression of 3 down, and it is exactly 0 where T is what `kruskal` made of the
    same numbers, where Adam would turn any rounding into full steps. Modes share partial
    contractions: three products with the whole tensor for any N. out: memory for the residual.
    """
    ahead = khatri_rao(factors[:-1])
    residual = torch.bmm(ahead.mT, factors[-1], out=out).sub_(target)  # as `kruskal` makes it
    before = _contract_all_but_one(torch.bmm(factors[-1], residual.mT), factors[:-1])
    return [*before, torch.bmm(ahead, residual)]


def count_factor_gradients_flops(modes: Sequence[int], rank: int) -> float:
    """Count the operations of `compute_factor_gradients`: the residual, which is 2 R + 1 a number
    of the tensor, and the contractions, 2 R a number of the tensor by the last mode and by all
    others, of what is left of it by those before."""
    total = (6.0 * rank + 1.0) * math.prod(modes) + _count_khatri_rao_flops(modes[:-1], rank)
    for count in range(len(modes) - 1, 1, -1):  # the last mode of what is left, and what then is
        total += 4.0 * rank * math.prod(modes[:count]) + _count_khatri_rao_flops(
            modes[: count - 1], rank
        )
    return total


def count_factor_gradient_flops(modes: Sequence[int], rank: int, mode: int) -> float:
    """Count the operations of the gradient by one factor alone: of the residual, and of it
    contracted with all modes after that one, then with all before."""
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
    return float(sum(rank * math.prod(modes[:count]) for count in range(2, len(modes) + 1)))


def _contract_all_but_one(u: Tensor, factors: Sequence[Tensor]) -> Factors:
    """Contract u [n, R, I_1 ... I_m], a tensor for each r, with all factors but one, for each."""
    if len(factors) == 1:
        return [u]
    *front, last = factors
    at_last = _contract_first(u, khatri_rao(front), last.shape[2])
    return [*_contract_all_but_one(_contract_last(u, last), front), at_last]


def _contract_last(u: Tensor, last: Tensor) -> Tensor:
    """Sum u [n, R, J I] over its last mode against last [n, R, I]; return [n, R, J]."""
    rows, size = u.shape[0] * u.shape[1], last.shape[2]
    return torch.bmm(u.reshape(rows, -1, size), last.reshape(rows, size, 1)).view(*u.shape[:2], -1)


def _contract_first(u: Tensor, ahead: Tensor, size: int) -> Tensor:
    """Sum u [n, R, J I] over its first modes against ahead [n, R, J]; return [n, R, I]."""
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
    matrix : the tensor as its last matrix.
    start : factors to begin from.
    change : a row stops when a sweep changes its residual by less than this; it never gets worse.
    ridge : Tikhonov term, relative to the diagonal of V_n.

    Returns
    -------
    The factors, and their relative residual [n].
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
    """Solve for each factor in turn, the later ones seeing the new values of the earlier."""
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
    """Return |target - [[A]]| / |target| [n]."""
    return ((target - kruskal(factors)).square().sum((1, 2)) / total).sqrt()


def compute_rank(modes: Sequence[int], compression_rate: float) -> int:
    """Return the rank at which prod I_n weights become R sum I_n at this rate, eqs. (23), (24)."""
    return max(1, round(math.prod(modes) / (compression_rate * sum(modes))))


def largest_rank(modes: Sequence[int]) -> int:
    """Return a rank at which every tensor of these modes is represented: the smallest product of
    all modes but one; of a matrix, its smaller side."""
    return math.prod(modes) // max(modes)


def count_coordinates(modes: Sequence[int], rank: int) -> int:
    """Count the numbers of the factors, Q = R sum I_n."""
    return rank * sum(modes)


def start_deviation(fan_in: int, rank: int, modes: int) -> float:
    """Return the standard deviation of a factor's entries at which those of [[A]], of `modes`
    independent normal factors, have He's variance 2 / fan_in: R sigma_A^(2N)."""
    return (2.0 / fan_in / rank) ** (1.0 / (2 * modes))
