"""Split a matrix into spectral factors, and find coordinates of its changes in them.

With the singular value decomposition W = U S V^T, the balanced factors L = U_r S_r^(1/2) and
R = S_r^(1/2) V_r^T (FedHM, eq. (18)) of a smaller rank are the first columns and rows of those of a
larger one: a frame that matrices of all ranks share.

Coordinates, not in the paper: near L R matrices of rank r move, to first order, in the tangent
space {X V_r^T + U_r Y}. The orthogonal projection of a change D on it is

    P(D) = C V_r^T + U_r E,  C = D V_r - U_r M / 2,  E = U_r^T D - M V_r^T / 2,  M = U_r^T D V_r,

and of all pairs with this sum (C, E) is the shortest. Tangent spaces of smaller ranks lie in those
of larger ones, so pairs of different rank add with zeros in the place of what they lack. White
noise on a pair is as large in the matrix.

A matrix is [n, a, b], its factors left [n, a, r] and right [n, r, b].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otafl.factorised.decomposition import svd

NUMBERS_AT_ONCE = 1 << 25
"""Numbers of the products of devices' factors that are made at a time."""


class Factors(NamedTuple):
    """Hold the matrix left @ right."""

    left: Tensor
    right: Tensor

    @property
    def product(self) -> Tensor:
        """Return the matrix [n, a, b]."""
        return torch.bmm(self.left, self.right)


def compute_rank(ratio: float, outputs: int, sides: tuple[int, int]) -> int:
    """Return a layer's rank: a ratio of its output channels, at most the matrix's smaller side."""
    return min(max(1, round(ratio * outputs)), *sides)


def factorise(matrix: Tensor, rank: int) -> Factors:
    """Return the best rank-r factors, balanced. Eq. (18)."""
    u, s, vt = svd(matrix, full_matrices=False)
    root = s[:, :rank].sqrt()
    return Factors(u[:, :, :rank] * root[:, None], root[:, :, None] * vt[:, :rank])


def singular_values(factors: Factors) -> Tensor:
    """Return the singular values [n, r] of spectral factors."""
    return factors.left.square().sum(1)


def compute_singular_vectors(factors: Factors) -> Factors:
    """Return singular vectors U, V^T of spectral factors; 0 where the singular value is
    rounding."""
    s = singular_values(factors)
    sides = max(factors.left.shape[1], factors.right.shape[2])
    some = s > sides * torch.finfo(s.dtype).eps * s.amax(1, keepdim=True)
    root = s.where(some, 1.0).rsqrt().where(some, 0.0)
    return Factors(factors.left * root[:, None], root[:, :, None] * factors.right)


def compute_coordinates(frame: Factors, dv: Tensor, utd: Tensor) -> Factors:
    """Return C [n, a, r] and E [n, r, b] of a change D from D V [n, a, r] and U^T D [n, r, b];
    frame: U, V^T."""
    middle = 0.5 * torch.bmm(frame.left.mT, dv)
    return Factors(
        torch.baddbmm(dv, frame.left, middle, alpha=-1.0),
        torch.baddbmm(utd, middle, frame.right, alpha=-1.0),
    )


def compute_matrix_coordinates(frame: Factors, change: Tensor) -> Factors:
    """Return the coordinates of a change D [n, a, b]."""
    dv, utd = torch.bmm(change, frame.right.mT), torch.bmm(frame.left.mT, change)
    return compute_coordinates(frame, dv, utd)


def compute_factor_coordinates(frame: Factors, old: Factors, new: Factors) -> Factors:
    """Return the coordinates of D = L' R' - L R = (L' - L) R' + L (R' - R), which is not made."""
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
    """Count the operations of `compute_factor_coordinates`, of as many as the frame has."""
    return (12.0 * a + 10.0 * b) * rank**2


def expand_coordinates(frame: Factors, coordinate: Factors) -> Tensor:
    """Return the change P(D) [n, a, b] that has these coordinates."""
    return torch.baddbmm(torch.bmm(coordinate.left, frame.right), frame.left, coordinate.right)


def sum_products(factors: Factors, weight: Tensor, trial: Tensor, num_trials: int) -> Tensor:
    """Return sum_p w_p L_p R_p [S, a, b] over the rows of each trial; weight, trial: [n]."""
    a, b = factors.left.shape[1], factors.right.shape[2]
    total = weight.new_zeros(num_trials, a, b)
    size = max(1, NUMBERS_AT_ONCE // (a * b))
    for start in range(0, len(weight), size):
        rows = slice(start, start + size)
        weighted = factors.left[rows] * weight[rows, None, None]
        total.index_add_(0, trial[rows], torch.bmm(weighted, factors.right[rows]))
    return total
