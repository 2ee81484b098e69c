"""Aggregate the CP factors of devices that left from the same factors A_t, in three ways.

afm   The mean of each factor (TDPFed, eq. 20): linear, so it superposes, but a product of means: it
      differs from the mean tensor by the factors' covariance, and factors of one tensor with their
      columns permuted or rescaled average to another tensor.
act   The mean of the tensors, factored again (eqs. 21, 22): needs each device.
tangent  Not in the paper. Near A_t tensors move, to first order, along J(B) = sum_n [[A1 .. Bn ..
      AN]]. A device projects the change of its tensor, D = [[A_k]] - [[A_t]], on these directions
      and sends the coordinates, as many reals as the factors have. All devices share the frame A_t
      and coordinates are linear in D, so superposed coordinates are those of the mean change; they
      depend on D alone, not on the factors a device holds it by.

The coordinates are C_n = V_n^(1/2) B_n with V_n of eq. (18): each mode's directions are then
orthonormal, and white noise on C is as large in the tensor in all of them. Of all coordinates with
the same J (the modes overlap, at least by the columns' scales) the shortest are taken. For matrices
they are in closed form, with U = V_2^(-1/2) A1, V = V_1^(-1/2) A2 and U^T U = V^T V = 1:

    C1 = (1 - U U^T / 2) D V,    C2 = (1 - V V^T / 2) D^T U,    J = C1 V^T + U C2^T = P_T(D),

for more modes by conjugate gradients on the normal equations. Neither forms a dense tensor:
inner products of CP tensors are Hadamard products of R x R matrices.

The server goes from A_t along the mean C. A matrix then has at most rank 2R and is truncated, the
best approximation: A_n + B_n has the same first order, but B_n = V_n^(-1/2) C_n is as large as V_n
is nearly singular, and with it the second order (measured at R = 100 of 784 x 100, random factors:
all of the change lost). For more modes the best approximation need not exist, V_n is a product of
several Gram matrices and far from singular, and A_n + B_n is taken.

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
"""A term added to the normal equations' matrix, whose diagonal blocks are the identity: directions
that all modes' coordinates reach by less than its root are left out gradually, and linearly in
D."""

CG_STEPS = 300
CG_TYPICAL = 50
"""As many are counted where operations are: how many it takes depends on the data."""

CG_RESIDUAL = 1e-8
"""The residual at which conjugate gradients stop, relative to the right-hand side."""

NUMBERS_AT_ONCE = 1 << 25
"""Numbers of the dense tensors that the server of act makes of the devices' factors at a time."""


def mean_tensor(
    factors: Sequence[Tensor], weight: Tensor, trial: Tensor, num_trials: int
) -> Tensor:
    """Return sum_k w_k [[A_k]] [S, ...] as last matrices; weight, trial: [n]. Eq. (21)."""
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
    """Find rank-R factors near tensors [S, ...], and the relative residual [S]; eq. (22). Those of
    matrices come by truncated SVD, split evenly, which is optimal; else by so many sweeps of
    alternating least squares from the best of the guesses."""
    if len(guesses[0]) == 2:
        return _truncate(tensor, rank)
    start, residual = guesses[0], _distance(tensor, guesses[0])
    for other in guesses[1:]:
        distance = _distance(tensor, other)
        nearer = (distance < residual)[:, None, None]
        start = [torch.where(nearer, b, a) for a, b in zip(start, other, strict=True)]
        residual = torch.minimum(residual, distance)
    return run_als(tensor, start, sweeps)


def _truncate(matrix: Tensor, rank: int) -> tuple[Factors, Tensor]:
    u, s, vt = svd(matrix, full_matrices=False)
    root = s[:, :rank, None].sqrt()
    tail = s[:, rank:].square().sum(1) / s.square().sum(1).clamp_min(torch.finfo(s.dtype).tiny)
    return [root * u[:, :, :rank].mT, root * vt[:, :rank]], tail.sqrt()


def _distance(tensor: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Return |tensor - [[A]]| [S]."""
    return (tensor - kruskal(factors)).flatten(1).norm(dim=1)


def compute_whitening(frame: Sequence[Tensor]) -> list[Tensor]:
    """Return V_n^(-1/2) [n, R, R] of every mode, symmetric; on its null space 0."""
    return [_compute_inverse_root(gram(frame, (mode,))) for mode in range(len(frame))]


def _compute_inverse_root(v: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(torch.nan_to_num(v, nan=0.0, posinf=0.0, neginf=0.0))
    some = values > RANK_FLOOR * values[:, -1:]
    root = values.where(some, 1.0).rsqrt().where(some, 0.0)
    return (vectors * root[:, None]) @ vectors.mT


def compute_coordinates(frame: Sequence[Tensor], factors: Sequence[Tensor]) -> Factors:
    """Return C_n of the change from [[at]] to [[own]], both [n, R, I_n], in the frame `frame`. It
    is calculated in double precision: the change is a small difference."""
    dtype = frame[0].dtype
    frame, factors = [f.double() for f in frame], [f.double() for f in factors]
    roots = compute_whitening(frame)
    solve = _solve_matrices if len(frame) == 2 else _solve_tensors
    return [c.to(dtype) for c in solve(frame, factors, roots)]


def count_coordinates_flops(modes: Sequence[int], rank: int) -> float:
    """Count the operations of `compute_coordinates`: the frame's Gram matrices and their roots,
    then what is in closed form of a matrix; of a tensor with CG_TYPICAL conjugate-gradient
    steps."""
    thin, small = rank**2 * sum(modes), count_eigh_flops(rank) + 2.0 * rank**3
    if len(modes) == 2:
        return 16.0 * thin + 2.0 * small
    return (10.0 + 10.0 * CG_TYPICAL) * thin + len(modes) * small


def expand_coordinates(frame: Sequence[Tensor], coordinates: Sequence[Tensor]) -> Factors:
    """Return B_n = V_n^(-1/2) C_n, the change of the factors with coordinates C_n."""
    roots = compute_whitening([f.double() for f in frame])
    return [(k @ c.double()).to(c.dtype) for k, c in zip(roots, coordinates, strict=True)]


def retract(frame: Sequence[Tensor], coordinates: Sequence[Tensor]) -> Factors:
    """Return factors of the tensor that lies at coordinates C_n from [[at]], to first order: of
    matrices the truncation, turned to lie near the factors `frame` and with their ratio of
    norms."""
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
    u, v = roots[1] @ frame[0], roots[0] @ frame[1]  # orthonormal rows
    dv = (v @ factors[1].mT) @ factors[0] - (v @ frame[1].mT) @ frame[0]
    du = (u @ factors[0].mT) @ factors[1] - (u @ frame[0].mT) @ frame[1]
    return [dv - 0.5 * (dv @ u.mT) @ u, du - 0.5 * (du @ v.mT) @ v]


def _solve_tensors(frame: Factors, factors: Factors, roots: list[Tensor]) -> Factors:
    """Solve by conjugate gradients from zero, each row with steps of its own; they end in the range
    of the normal matrix, where the shortest solution is."""
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
    """Return ([[of]]_(n) H_n)^T [n, R, I_n] of every mode, H_n of the factors `frame`."""
    crossed = [torch.bmm(a, f.mT) for a, f in zip(frame, factors, strict=True)]
    return [torch.bmm(_multiply_elementwise(crossed, (n,)), f) for n, f in enumerate(factors)]


def _apply_normal_operator(
    frame: Factors, products: list[Tensor], roots: list[Tensor], c: Sequence[Tensor]
) -> Factors:
    """Return (J^T J + ridge) C in coordinates."""
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
    """Multiply matrices elementwise, some left out."""
    out = torch.ones_like(matrices[0])
    for mode, matrix in enumerate(matrices):
        if mode not in excluded:
            out = out * matrix
    return out


def _inner_product(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Return <a, b> [n]."""
    parts = [(x * y).sum((1, 2)) for x, y in zip(a, b, strict=True)]
    return torch.stack(parts).sum(0)
