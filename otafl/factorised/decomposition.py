"""Singular value decompositions of batches with faulty matrices, and operations of decompositions.

References
----------
Golub, Van Loan 2013, "Matrix Computations", 4th edition (GvL).
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.factorised import jacobi


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


def svd_of_full_rank(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute U, s and V^T of square matrices [n, a, a], as `svd`.

    Small matrices on a GPU are decomposed by Jacobi rotations, for which the host does not wait.
    Their singular vectors can have other signs than those of the library. Columns of U are
    orthonormal only where s is above rounding.
    """
    if matrix.is_cuda and jacobi.fits(matrix):
        return jacobi.decompose_at_once(matrix)
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
