"""Aggregation of the CP factors of devices that started from the same factors A_t.

There are three methods:

afm      The mean of each factor (TDPFed, eq. (20)). It is linear, so updates superpose over the
air. But it is a product of means: it differs from the mean tensor by the factors' covariance, and
factors of one tensor with permuted or rescaled columns average to another tensor.
act      The mean of the tensors, factorised again (eqs. (21), (22)). It needs each device's update.
tangent  Not in the paper. Near A_t tensors move, to first order, along J(B) = sum_n [[A1 .. Bn ..
AN]]. A device projects the change of its tensor, D = [[A_k]] - [[A_t]], on these directions and
sends as many coordinates as the factors have. All devices share the frame A_t and coordinates are
linear in D, so superposed coordinates are those of the mean change. They depend only on D, not on
the choice of a device's factors.

The coordinates are C_n = V_n^(1/2) B_n with V_n of eq. (18). Then the directions of each mode are
orthonormal, and white noise on C has the same variance in all directions of the tensor. Modes
overlap, at least by the scales of the columns, so several coordinates have the same J. The shortest
of them are used. For matrices they have a closed form, with U = V_2^(-1/2) A1, V = V_1^(-1/2) A2
and U^T U = V^T V = 1:

    C1 = (1 - U U^T / 2) D V,    C2 = (1 - V V^T / 2) D^T U,    J = C1 V^T + U C2^T = P_T(D)

For more modes conjugate gradients solve the normal equations. Neither forms a dense tensor, because
inner products of CP tensors are Hadamard products of R x R matrices.

The server moves from A_t along the mean C. A matrix then has at most rank 2R and is truncated, the
best approximation. A_n + B_n has the same first order, but B_n = V_n^(-1/2) C_n and the
second-order term are large if V_n is nearly singular. Measured at R = 100 of 784 x 100 with random
factors, this loses the whole change. For more modes a best approximation need not exist. There V_n
is a product of several Gram matrices and far from singular, so the server uses A_n + B_n.

Factors and coordinates are [n, R, I_n], as in `factorised.cp`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.factorised.cp import Factors, gram, khatri_rao, kruskal, run_als
from otafl.factorised.decomposition import count_eigh_flops, svd
from otafl.factorised.lowrank import compress

RANK_FLOOR = 1e-12
"""Eigenvalues of V_n below this share of the largest count as zero."""

RIDGE = 1e-8
"""Term added to the matrix of the normal equations, whose diagonal blocks are the identity.

Directions that the coordinates of all modes reach by less than its root are left out gradually, and
linearly in D.
"""

CG_STEPS = 300
"""Largest number of conjugate-gradient steps."""
CG_TYPICAL = 50
"""Number of steps for counting operations; the real number depends on the data."""

CG_RESIDUAL = 1e-8
"""Residual at which conjugate gradients stop, relative to the right-hand side."""

NUMBERS_AT_ONCE = 1 << 25
"""Numbers of the dense tensors that the server forms at a time for act."""


def mean_tensor(
    factors: Sequence[Tensor], weight: Tensor, trial: Tensor, num_trials: int
) -> Tensor:
    """Compute the weighted sum of the devices' tensors, eq. (21).

    Parameters
    ----------
    factors : sequence of Tensor [n, R, I_m]
        Factors A_k of each row.
    weight : Tensor [n]
        Weight w_k of each row.
    trial : Tensor, int64 [n]
        Trial of each row.
    num_trials : int
        Number of trials, S.

    Returns
    -------
    Tensor [S, I_1 ... I_(N-1), I_N]
        sum_k w_k [[A_k]] as last unfoldings.
    """
    rows, columns = khatri_rao([f[:1] for f in factors[:-1]]).shape[2], factors[-1].shape[2]
    total = weight.new_zeros(num_trials, rows, columns)
    size = max(1, NUMBERS_AT_ONCE // (rows * columns))
    for start in range(0, len(weight), size):
        part = slice(start, start + size)
        weighted = [factors[0][part] * weight[part, None, None], *(f[part] for f in factors[1:])]
        total.index_add_(0, trial[part], kruskal(weighted))
    return total


def find_factors(
    tensor: Tensor, guesses: Sequence[Sequence[Tensor]], rank: int, sweeps: int = 50
) -> tuple[Factors, Tensor]:
    """Find rank-R factors near tensors, eq. (22).

    Factors of matrices come from a truncated SVD, split evenly, which is optimal. Others come from
    alternating least squares from the best of the guesses.

    Parameters
    ----------
    tensor : Tensor [S, I_1 ... I_(N-1), I_N]
        Tensors as last unfoldings.
    guesses : sequence of sequence of Tensor [S, R, I_n]
        Factors of possible starts.
    rank : int
        Rank R.
    sweeps : int
        Largest number of sweeps.

    Returns
    -------
    list of Tensor [S, R, I_n]
        Factors.
    Tensor [S]
        Relative residual.
    """
    if len(guesses[0]) == 2:
        u, s, vt = svd(tensor, full_matrices=False)
        root = s[:, :rank, None].sqrt()
        tail = s[:, rank:].square().sum(1) / s.square().sum(1).clamp_min(torch.finfo(s.dtype).tiny)
        return [root * u[:, :, :rank].mT, root * vt[:, :rank]], tail.sqrt()
    start, residual = guesses[0], _distance(tensor, guesses[0])
    for other in guesses[1:]:
        distance = _distance(tensor, other)
        nearer = (distance < residual)[:, None, None]
        start = [torch.where(nearer, b, a) for a, b in zip(start, other, strict=True)]
        residual = torch.minimum(residual, distance)
    return run_als(tensor, start, sweeps)


def _distance(tensor: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Compute |tensor - [[A]]|, [S]."""
    return (tensor - kruskal(factors)).flatten(1).norm(dim=1)


def compute_whitening(frame: Sequence[Tensor]) -> list[Tensor]:
    """Compute V_n^(-1/2) [n, R, R] of every mode, symmetric, with 0 on the null space."""
    return [_compute_inverse_root(gram(frame, (mode,))) for mode in range(len(frame))]


def _compute_inverse_root(v: Tensor) -> Tensor:
    """Compute V^(-1/2) of symmetric matrices [n, R, R]."""
    values, vectors = torch.linalg.eigh(torch.nan_to_num(v, nan=0.0, posinf=0.0, neginf=0.0))
    some = values > RANK_FLOOR * values[:, -1:]
    root = values.where(some, 1.0).rsqrt().where(some, 0.0)
    return (vectors * root[:, None]) @ vectors.mT


def compute_coordinates(frame: Sequence[Tensor], factors: Sequence[Tensor]) -> Factors:
    """Compute the coordinates C_n of the change of a tensor in the frame of other factors.

    The change is a small difference, so the computation is in double precision.

    Parameters
    ----------
    frame, factors : sequence of Tensor [n, R, I_n]
        Factors A_t and A_k.

    Returns
    -------
    list of Tensor [n, R, I_n]
        Coordinates.
    """
    dtype = frame[0].dtype
    frame, factors = [f.double() for f in frame], [f.double() for f in factors]
    roots = compute_whitening(frame)
    solve = _solve_matrices if len(frame) == 2 else _solve_tensors
    return [c.to(dtype) for c in solve(frame, factors, roots)]


def count_coordinates_flops(modes: Sequence[int], rank: int) -> float:
    """Count the operations of `compute_coordinates`.

    They are the frame's Gram matrices and their roots, and the closed form of a matrix, or
    `CG_TYPICAL` conjugate-gradient steps of a tensor.
    """
    thin, small = rank**2 * sum(modes), count_eigh_flops(rank) + 2.0 * rank**3
    if len(modes) == 2:
        return 16.0 * thin + 2.0 * small
    return (10.0 + 10.0 * CG_TYPICAL) * thin + len(modes) * small


def expand_coordinates(frame: Sequence[Tensor], coordinates: Sequence[Tensor]) -> Factors:
    """Compute the change of the factors with given coordinates.

    Parameters
    ----------
    frame, coordinates : sequence of Tensor [n, R, I_n]
        Factors A_t, and coordinates C_n.

    Returns
    -------
    list of Tensor [n, R, I_n]
        B_n = V_n^(-1/2) C_n.
    """
    roots = compute_whitening([f.double() for f in frame])
    return [(k @ c.double()).to(c.dtype) for k, c in zip(roots, coordinates, strict=True)]


def retract(frame: Sequence[Tensor], coordinates: Sequence[Tensor]) -> Factors:
    """Return factors of the tensor at coordinates C_n from the frame, to first order.

    Matrices are truncated. Their factors are rotated to lie near those of the frame, with the same
    ratio of norms.

    Parameters
    ----------
    frame, coordinates : sequence of Tensor [n, R, I_n]
        Factors A_t, and coordinates C_n.

    Returns
    -------
    list of Tensor [n, R, I_n]
        Factors.
    """
    if len(frame) > 2:
        return [f + b for f, b in zip(frame, expand_coordinates(frame, coordinates), strict=True)]
    dtype = frame[0].dtype
    frame, (c1, c2) = [f.double() for f in frame], [c.double() for c in coordinates]
    roots = compute_whitening(frame)
    u, v = roots[1] @ frame[0], roots[0] @ frame[1]
    core = (u @ frame[0].mT) @ (frame[1] @ v.mT)  # [[at]] = u^T core v
    left, right = torch.cat([u, c1], 1), torch.cat([core @ v + c2, v], 1)
    (point,) = compress([left.mT], [right.mT], [u.shape[1]])
    root = point.s[..., None].sqrt()
    new = [root * point.u.mT, root * point.v.mT]
    overlap = frame[0] @ new[0].mT + frame[1] @ new[1].mT
    a, _, b = svd(torch.nan_to_num(overlap, nan=0.0, posinf=0.0, neginf=0.0))
    ratio = (frame[0].flatten(1).norm(dim=1) / frame[1].flatten(1).norm(dim=1)).sqrt()[
        :, None, None
    ]
    turn = a @ b
    return [(ratio * (turn @ new[0])).to(dtype), ((turn @ new[1]) / ratio).to(dtype)]


def _solve_matrices(frame: Factors, factors: Factors, roots: list[Tensor]) -> Factors:
    """Compute the coordinates of matrices in closed form."""
    u, v = roots[1] @ frame[0], roots[0] @ frame[1]  # orthonormal rows
    dv = (v @ factors[1].mT) @ factors[0] - (v @ frame[1].mT) @ frame[0]
    du = (u @ factors[0].mT) @ factors[1] - (u @ frame[0].mT) @ frame[1]
    return [dv - 0.5 * (dv @ u.mT) @ u, du - 0.5 * (du @ v.mT) @ v]


def _solve_tensors(frame: Factors, factors: Factors, roots: list[Tensor]) -> Factors:
    """Solve by conjugate gradients from zero, with steps of its own for each row.

    The iterates stay in the range of the normal matrix, where the shortest solution is.
    """
    products = [torch.bmm(f, f.mT) for f in frame]
    to_own = _adjoint(frame, factors)
    to_at = _adjoint(frame, frame)
    rhs = [k @ (b - a) for k, b, a in zip(roots, to_own, to_at, strict=True)]
    x = [torch.zeros_like(b) for b in rhs]
    residual, along = list(rhs), list(rhs)
    size = _inner_product(rhs, rhs)
    enough = CG_RESIDUAL**2 * size
    for _ in range(CG_STEPS):
        image = _apply_normal_operator(frame, products, roots, along)
        step = size / _inner_product(along, image).clamp_min(torch.finfo(size.dtype).tiny)
        step = torch.where(size > enough, step, 0.0)[:, None, None]
        x = [a + step * b for a, b in zip(x, along, strict=True)]
        residual = [a - step * b for a, b in zip(residual, image, strict=True)]
        new = _inner_product(residual, residual)
        turn = torch.where(size > enough, new / size, 0.0)[:, None, None]
        along = [a + turn * b for a, b in zip(residual, along, strict=True)]
        size = new
        if not (size > enough).any():
            break
    return x


def _adjoint(frame: Sequence[Tensor], factors: Sequence[Tensor]) -> Factors:
    """Compute ([[factors]]_(n) H_n)^T [n, R, I_n] of every mode, H_n of the frame."""
    crossed = [torch.bmm(a, f.mT) for a, f in zip(frame, factors, strict=True)]
    return [torch.bmm(_multiply_elementwise(crossed, (n,)), f) for n, f in enumerate(factors)]


def _apply_normal_operator(
    frame: Factors, products: list[Tensor], roots: list[Tensor], c: Sequence[Tensor]
) -> Factors:
    """Compute (J^T J + ridge) C in coordinates."""
    b = [k @ one for k, one in zip(roots, c, strict=True)]
    crossed = [torch.bmm(a, one.mT) for a, one in zip(frame, b, strict=True)]  # A_m^T B_m
    out = []
    for n, factor in enumerate(frame):
        within = _multiply_elementwise(products, (n,)) @ b[n]
        across = sum(
            (
                _multiply_elementwise(products, (n, m)) * crossed[m]
                for m in range(len(frame))
                if m != n
            ),
            torch.zeros(()),
        )
        out.append(roots[n] @ (within + across @ factor) + RIDGE * c[n])
    return out


def _multiply_elementwise(matrices: list[Tensor], excluded: tuple[int, ...]) -> Tensor:
    """Multiply matrices elementwise, without the excluded ones."""
    out = torch.ones_like(matrices[0])
    for mode, matrix in enumerate(matrices):
        if mode not in excluded:
            out = out * matrix
    return out


def _inner_product(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Compute <a, b>, [n]."""
    parts = [(x * y).sum((1, 2)) for x, y in zip(a, b, strict=True)]
    return torch.stack(parts).sum(0)
