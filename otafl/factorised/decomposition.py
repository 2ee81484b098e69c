"""Singular value decompositions of batches with faulty matrices, and operations of decompositions.

References
----------
Golub, Van Loan 2013, "Matrix Computations", 4th edition (GvL).
Demmel and Veselic 1992, "Jacobi's Method is More Accurate than QR".
Brent and Luk 1985, "The Solution of Singular-Value and Symmetric Eigenvalue Problems on
    Multiprocessor Arrays", for the order of the pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor


def svd(matrix: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Compute U, s and V^T of each matrix.

    A matrix that is not finite has singular values of NaN, so that a diverging trial does not end
    the other trials of its stack. A matrix whose decomposition fails is decomposed in double
    precision, because drivers in single precision fail for some valid matrices.

    Parameters
    ----------
    matrix : Tensor [n, a, b]
        Matrices.
    full_matrices : bool
        Whether U and V are square.

    Returns
    -------
    Tensor [n, a, a or r], Tensor [n, r], Tensor [n, b or r, b]
        U, s and V^T with r = min(a, b).

    Raises
    ------
    torch.linalg.LinAlgError
        If the decomposition fails in double precision too.
    """
    try:
        return torch.linalg.svd(matrix, full_matrices=full_matrices)
    except torch.linalg.LinAlgError:
        finite = matrix.isfinite().all(-1).all(-1)[:, None]
        sound = matrix.where(finite[..., None], 0.0)
        parts = zip(*(_decompose_single(one, full_matrices) for one in sound), strict=True)
        u, s, vt = (torch.stack(part) for part in parts)
        return u, s.where(finite, torch.nan), vt


def svd_of_layers(layers: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Compute U, s and V^T of the matrices [n, a, b] of several layers, as `svd`.

    Layers of equal sides are decomposed together, so that the host waits once for them on a GPU.
    """
    found: dict[int, tuple[Tensor, ...]] = {}
    for shape in dict.fromkeys(matrix.shape for matrix in layers):
        alike = [i for i, matrix in enumerate(layers) if matrix.shape == shape]
        parts = svd(torch.cat([layers[i] for i in alike]))
        found |= zip(
            alike, zip(*(part.chunk(len(alike)) for part in parts), strict=True), strict=True
        )
    return [found[i] for i in range(len(layers))]


def svd_of_full_rank(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute U, s and V^T of square matrices [n, a, a], as `svd`.

    Small matrices on a GPU are decomposed by Jacobi rotations, for which the host does not wait.
    Their singular vectors can have other signs than those of the library. Columns of U are
    orthonormal only where s is above rounding.
    """
    if matrix.is_cuda and 0 < matrix.shape[-1] <= MAX_COLUMNS:
        return decompose_by_rotations(matrix)
    return svd(matrix)


def _decompose_single(matrix: Tensor, full_matrices: bool) -> tuple[Tensor, ...]:
    """Decompose one matrix [a, b]."""
    try:
        return tuple(torch.linalg.svd(matrix, full_matrices=full_matrices))
    except torch.linalg.LinAlgError:
        exact = torch.linalg.svd(matrix.double(), full_matrices=full_matrices)
        return tuple(part.to(matrix.dtype) for part in exact)


def count_cholesky_flops(side: int) -> float:
    """Count the operations of a Cholesky factorisation, n^3 / 3. GvL, section 4.2.5."""
    return side**3 / 3.0


def count_triangular_inverse_flops(side: int) -> float:
    """Count the operations of n right-hand sides of a triangular system, n^2 each.

    GvL, section 3.1.2.
    """
    return float(side**3)


def count_eigh_flops(side: int) -> float:
    """Count the operations of eigenvalues and eigenvectors of a symmetric matrix, 9 n^3.

    GvL, section 8.3.3.
    """
    return 9.0 * side**3


def count_svd_flops(side: int) -> float:
    """Count the operations of singular values and vectors of a square matrix, 21 n^3.

    Golub's and Reinsch's algorithm has 4 m^2 n + 8 m n^2 + 9 n^3. GvL, figure 8.6.1.
    """
    return 21.0 * side**3


MAX_COLUMNS = 16
"""Largest number of columns. The time grows with its square."""

MIN_SWEEPS = 5
"""Sweeps over all pairs, and one more for each doubling of the columns.

With fewer, columns of normal, graded and nearly equal singular values are not yet orthogonal to
rounding in float64 (at 2 to 16 columns).
"""


def decompose_by_rotations(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute U, s and V^T of each matrix by one-sided Jacobi rotations.

    These are the same operations for every matrix: the number of sweeps is fixed, and n / 2 pairs
    of columns are rotated at once. So they never wait for a GPU, and fit in a CUDA graph.

    Parameters
    ----------
    matrix : Tensor [n, a, b]
        Matrices. One that is not finite has only results of NaN.

    Returns
    -------
    Tensor [n, a, r], Tensor [n, r], Tensor [n, r, b]
        U, s in decreasing order and V^T with r = min(a, b). Columns of U are orthonormal where s is
        above rounding, and elsewhere they are not completed to a basis.

    Notes
    -----
    Columns x and y of A are rotated by the angle atan(2 x.y / (|x|^2 - |y|^2)) / 2, after which
    they are orthogonal, and those of V with them. Then A V = U diag(s).
    """
    rows, columns = matrix.shape[-2:]
    if rows < columns:
        v, s, ut = decompose_by_rotations(matrix.mT)
        return ut.mT, s, v.mT
    tiny = torch.finfo(matrix.dtype).tiny
    scale = matrix.abs().amax((1, 2)).clamp_min(tiny)  # so that no square is too small or large
    pairs = (columns + 1) // 2
    one = torch.eye(columns, dtype=matrix.dtype, device=matrix.device)
    w = torch.cat(
        [matrix.mT / scale[:, None, None], one.expand(len(matrix), -1, -1)], 2
    )  # columns of A over those of V
    if columns % 2:
        w = torch.nn.functional.pad(w, (0, 0, 0, 1))
    order = _get_order(pairs, matrix.device)
    sweeps = MIN_SWEEPS + (2 * pairs - 1).bit_length()
    for _ in range(sweeps * max(1, 2 * pairs - 1)):
        pair = w.view(-1, 2, w.shape[2])
        own = pair[:, :, :rows]
        gram = torch.bmm(own, own.mT)
        apart = gram[:, 0, 0] - gram[:, 1, 1]
        angle = (2.0 * gram[:, 0, 1] / (apart + tiny)).atan_().mul_(0.5)
        c, s = angle.cos(), angle.sin_()
        turn = torch.stack([c, s, -s, c], 1).view(-1, 2, 2)
        w = torch.bmm(turn, pair).view_as(w).index_select(1, order)
    norm = w[:, :, :rows].norm(dim=2)
    s, place = norm.sort(dim=1, descending=True)
    s, place = s[:, :columns], place[:, :columns, None].expand(-1, -1, w.shape[2])
    w = w.gather(1, place)
    u = w[:, :, :rows] / s.clamp_min(tiny)[:, :, None]
    return u.mT, s * scale[:, None], w[:, :, rows:]


@functools.cache
def _get_order(pairs: int, device: torch.device) -> Tensor:
    """Return the places from which the columns come before the next rotations, int64 [2 pairs].

    Pairs are neighbours. The first column stays, and the others move round it, so that every two
    meet once in 2 pairs - 1 rotations.
    """
    upper, lower = list(range(0, 2 * pairs, 2)), list(range(1, 2 * pairs, 2))
    if pairs > 1:
        upper, lower = [upper[0], lower[0], *upper[1:-1]], [*lower[1:], upper[-1]]
    places = [at for both in zip(upper, lower, strict=True) for at in both]
    return torch.tensor(places, device=device)
