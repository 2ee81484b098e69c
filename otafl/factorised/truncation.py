"""Spectral factors of a matrix, and coordinates of its changes in them.

The balanced factors of a smaller rank are the first columns and rows of those of a larger rank: a
frame that matrices of all ranks share.

A matrix is [n, a, b], its factors left [n, a, r] and right [n, r, b]. With the singular value
decomposition W = U S V^T the balanced factors are L = U_r S_r^(1/2) and R = S_r^(1/2) V_r^T (FedHM,
eq. (18)).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otafl.factorised.decomposition import svd

NUMBERS_AT_ONCE = 1 << 25
"""Numbers of the products of devices' factors that are formed at a time."""


class Factors(NamedTuple):
    """Matrix left @ right.

    Parameters
    ----------
    left : Tensor [n, a, r]
        Left factor.
    right : Tensor [n, r, b]
        Right factor.
    """

    left: Tensor
    right: Tensor

    @property
    def product(self) -> Tensor:
        """The matrix [n, a, b]."""
        return torch.bmm(self.left, self.right)


def compute_rank(ratio: float, outputs: int, sides: tuple[int, int]) -> int:
    """Compute a layer's rank, a ratio of its output channels.

    Parameters
    ----------
    ratio : float
        Ratio of the rank to the output channels.
    outputs : int
        Number of output channels.
    sides : tuple of int
        Sides of the matrix.

    Returns
    -------
    int
        Rank, at least 1 and at most the smaller side.
    """
    return min(max(1, round(ratio * outputs)), *sides)


def factorise(matrix: Tensor, rank: int) -> Factors:
    """Compute the best balanced factors of rank r, eq. (18).

    Parameters
    ----------
    matrix : Tensor [n, a, b]
        Matrix.
    rank : int
        Rank r.

    Returns
    -------
    Factors
        Spectral factors.
    """
    u, s, vt = svd(matrix, full_matrices=False)
    root = s[:, :rank].sqrt()
    return Factors(u[:, :, :rank] * root[:, None], root[:, :, None] * vt[:, :rank])


def singular_values(factors: Factors) -> Tensor:
    """Compute the singular values [n, r] of spectral factors."""
    return factors.left.square().sum(1)


def compute_singular_vectors(factors: Factors) -> Factors:
    """Compute the singular vectors of spectral factors.

    Parameters
    ----------
    factors : Factors
        Spectral factors.

    Returns
    -------
    Factors
        U [n, a, r] and V^T [n, r, b], 0 for singular values of the size of rounding.
    """
    s = singular_values(factors)
    sides = max(factors.left.shape[1], factors.right.shape[2])
    some = s > sides * torch.finfo(s.dtype).eps * s.amax(1, keepdim=True)
    root = s.where(some, 1.0).rsqrt().where(some, 0.0)
    return Factors(factors.left * root[:, None], root[:, :, None] * factors.right)


def compute_coordinates(frame: Factors, dv: Tensor, utd: Tensor) -> Factors:
    r"""Compute the coordinates of a change D in a frame.

    Parameters
    ----------
    frame : Factors
        U and V^T.
    dv : Tensor [n, a, r]
        D V.
    utd : Tensor [n, r, b]
        U^T D.

    Returns
    -------
    Factors
        C [n, a, r] and E [n, r, b].

    Notes
    -----
    Not in the paper. Near L R matrices of rank r move, to first order, in the tangent space {X V^T
    + U Y}. The orthogonal projection of a change D on it is

    .. math::

        P(D) = C V^T + U E, \quad C = D V - U M / 2, \quad E = U^T D - M V^T / 2, \quad M = U^T D V

    and (C, E) is the shortest of all pairs with this sum. Tangent spaces of smaller ranks lie in
    those of larger ones, so pairs of different rank add with zeros for the missing columns. White
    noise on a pair has the same variance in the matrix.
    """
    middle = 0.5 * torch.bmm(frame.left.mT, dv)
    return Factors(
        torch.baddbmm(dv, frame.left, middle, alpha=-1.0),
        torch.baddbmm(utd, middle, frame.right, alpha=-1.0),
    )


def compute_matrix_coordinates(frame: Factors, change: Tensor) -> Factors:
    """Compute the coordinates of a dense change in a frame.

    Parameters
    ----------
    frame : Factors
        U and V^T.
    change : Tensor [n, a, b]
        Change D.

    Returns
    -------
    Factors
        C [n, a, r] and E [n, r, b].
    """
    dv, utd = torch.bmm(change, frame.right.mT), torch.bmm(frame.left.mT, change)
    return compute_coordinates(frame, dv, utd)


def compute_factor_coordinates(frame: Factors, old: Factors, new: Factors) -> Factors:
    """Compute the coordinates of the change of a product, without forming it.

    Parameters
    ----------
    frame : Factors
        U and V^T.
    old, new : Factors
        Factors of D = L' R' - L R = (L' - L) R' + L (R' - R).

    Returns
    -------
    Factors
        C [n, a, r] and E [n, r, b].
    """
    left, right = new.left - old.left, new.right - old.right
    inner = torch.bmm(new.right, frame.right.mT)
    dv = torch.bmm(left, inner).baddbmm_(old.left, torch.bmm(right, frame.right.mT))
    utd = torch.bmm(torch.bmm(frame.left.mT, left), new.right)
    utd.baddbmm_(torch.bmm(frame.left.mT, old.left), right)
    return compute_coordinates(frame, dv, utd)


def count_matrix_coordinates_flops(a: int, b: int, rank: int) -> float:
    """Count the operations of `compute_matrix_coordinates`."""
    return 4.0 * a * b * rank + (4.0 * a + 2.0 * b) * rank**2


def count_factor_coordinates_flops(a: int, b: int, rank: int) -> float:
    """Count the operations of `compute_factor_coordinates` at the rank of the frame."""
    return (12.0 * a + 10.0 * b) * rank**2


def expand_coordinates(frame: Factors, coordinate: Factors) -> Tensor:
    """Compute the change with given coordinates.

    Parameters
    ----------
    frame : Factors
        U and V^T.
    coordinate : Factors
        C and E.

    Returns
    -------
    Tensor [n, a, b]
        P(D) = C V^T + U E.
    """
    return torch.baddbmm(torch.bmm(coordinate.left, frame.right), frame.left, coordinate.right)


def sum_products(factors: Factors, weight: Tensor, trial: Tensor, num_trials: int) -> Tensor:
    """Compute the weighted sum of products of factors over the rows of each trial.

    Parameters
    ----------
    factors : Factors [n, a, r], [n, r, b]
        Factors L_p, R_p of each row.
    weight : Tensor [n]
        Weight w_p.
    trial : Tensor, int64 [n]
        Trial of each row.
    num_trials : int
        Number of trials, S.

    Returns
    -------
    Tensor [S, a, b]
        sum_p w_p L_p R_p.
    """
    a, b = factors.left.shape[1], factors.right.shape[2]
    total = weight.new_zeros(num_trials, a, b)
    size = max(1, NUMBERS_AT_ONCE // (a * b))
    for start in range(0, len(weight), size):
        rows = slice(start, start + size)
        weighted = factors.left[rows] * weight[rows, None, None]
        total.index_add_(0, trial[rows], torch.bmm(weighted, factors.right[rows]))
    return total
