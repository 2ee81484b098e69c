"""Measures of updates: their coherence, and the distortion of random linear coding.

The generalised coherence of vectors is their distance from orthogonality. The distortion is the
error of FedRLR's product of two superposed sums, eqs. (21)-(31); its second moments are not in the
paper. Squared errors are of the Frobenius norm.

References
----------
Gish, Cochran 1988, "Generalized Coherence".
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation".
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.factorised.lowrank import LowRank

_COLUMNS = 1 << 14  # at a time, which bounds the memory of the copy in double precision


def coherence(vectors: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute the generalised coherence of vectors.

    Parameters
    ----------
    vectors : Tensor [S, n, P]
        Vectors of each trial. Zero vectors are left out.

    Returns
    -------
    Tensor, float64 [S]
        Coherence, 1 - det G.
    Tensor, float64 [S]
        ln det G, which is -inf for dependent vectors.

    Notes
    -----
    G is the Gram matrix of the vectors scaled to length one:

    .. math::

        \gamma = 1 - \det G

    It is 0 for orthogonal vectors, 1 for linearly dependent ones, the squared cosine for two
    vectors, and does not depend on their lengths.
    """
    gram = vectors.new_zeros(*vectors.shape[:2], vectors.shape[1], dtype=torch.float64)
    for part in vectors.split(_COLUMNS, 2):
        part = part.double()
        gram.baddbmm_(part, part.mT)
    length = gram.diagonal(dim1=1, dim2=2).sqrt()
    length = torch.where(length > 0, length, 1.0)
    gram = gram / (length[:, :, None] * length[:, None, :])
    gram.diagonal(dim1=1, dim2=2).fill_(1.0)  # so a zero vector is orthogonal to all
    sign, log_det = torch.linalg.slogdet(gram)
    log_det = torch.where(sign > 0, log_det.clamp_max(0.0), -torch.inf)  # det G is in 0..1
    return -torch.expm1(log_det), log_det


def compute_distortion(
    nuclear: Tensor,
    squares: Tensor,
    mean_square: Tensor,
    weight: Tensor,
    rank: int,
    fourth: float = 1.0,
) -> Tensor:
    r"""Compute the expected squared error of the product of sums without noise.

    Parameters
    ----------
    nuclear : Tensor [S, K]
        Sum of the singular values of each Theta_k.
    squares : Tensor [S, K]
        |Theta_k|^2.
    mean_square : Tensor [S]
        |T|^2.
    weight : Tensor [S, K]
        Weights w_k.
    rank : int
        Rank R.
    fourth : float
        E a^4 of independent gains with E a^2 = 1: 1 for unit gains, 2 for GBMA over Rayleigh fading
        (a = |h|, the same for both factors).

    Returns
    -------
    Tensor [S]
        Distortion, for any weights Theta_k of K devices.

    Notes
    -----
    Device k sends sqrt(w_k) U_k sqrt(S_k) F_k and sqrt(w_k) V_k sqrt(S_k) F_k, where F_k [R, R] has
    independent entries +-1/sqrt(R). With gains a_k the server has sums X_U and X_V, and X_U X_V^T
    has the expectation T = sum_k w_k Theta_k if E a^2 = 1. The distortion is

    .. math::

        E \|X_U X_V^T - T\|^2.

    The product has terms of one device, a^2 w (Theta_k + A O B^T), where O = F F^T - 1 is symmetric
    with variance 1/R off the diagonal. Terms of a pair have F_k F_j^T with entries of variance 1/R.
    The terms (k, j) and (j, k) share it, so their inner product is <Theta_k, Theta_j> / R. All
    others are uncorrelated.
    """
    own = (fourth - 1.0) * squares + fourth * (nuclear.square() - squares) / rank
    pairs = (weight * nuclear).sum(-1).square() - (weight * nuclear).square().sum(-1)
    crossed = mean_square - (weight.square() * squares).sum(-1)
    return (weight.square() * own).sum(-1) + (pairs + crossed) / rank


def compute_inner_products(points: LowRank) -> Tensor:
    """Compute the inner products <Theta_k, Theta_j> from the factors.

    It goes device by device, with K^2 R^2 (M + N) operations and S K R^2 numbers of memory.

    Parameters
    ----------
    points : LowRank
        Factors u [S, K, M, R], s [S, K, R], v [S, K, N, R].

    Returns
    -------
    Tensor [S, K, K]
        Inner products.
    """
    u, v = points.u * points.s[:, :, None], points.v
    trials, devices, _, rank = u.shape
    all_u, all_v = (side.transpose(1, 2).flatten(2) for side in (u, v))  # [S, M or N, K R]
    rows = []
    for k in range(devices):
        both = torch.bmm(u[:, k].mT, all_u) * torch.bmm(v[:, k].mT, all_v)
        rows.append(both.view(trials, rank, devices, rank).sum((1, 3)))
    return torch.stack(rows, 1)
