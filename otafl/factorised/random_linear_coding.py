"""Say the distortion of random linear coding: what FedRLR's product of two superposed sums costs.

Device k sends sqrt(w_k) U_k sqrt(S_k) F_k and sqrt(w_k) V_k sqrt(S_k) F_k with F_k [R, R] of
independent entries +-1/sqrt(R). With gains a_k >= 0 the server has the sums X_U and X_V and takes
X_U X_V^T for T = sum_k w_k Theta_k, whose expectation it is where E a^2 = 1. Xue and Lau, FedRLR,
eqs. (21)-(31); the second moments below are not in the paper. Squared errors are of the Frobenius
norm.

The product has three kinds of terms. Those of one device are a^2 w (Theta_k + A O B^T) with O = F
F^T - 1 symmetric, its entries off the diagonal of variance 1/R. Those of a pair have F_k F_j^T,
with entries of variance 1/R, and (k, j) and (j, k) share it: their inner product is <Theta_k,
Theta_j> / R. All else is uncorrelated.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.factorised.lowrank import LowRank


def compute_distortion(
    nuclear: Tensor,
    squares: Tensor,
    mean_square: Tensor,
    weight: Tensor,
    rank: int,
    fourth: float = 1.0,
) -> Tensor:
    """Return E |X_U X_V^T - T|^2 [S], without noise, for any weights Theta_k of K devices.

    Parameters
    ----------
    nuclear : sum of the singular values of each Theta_k [S, K].
    squares : |Theta_k|^2 [S, K].
    mean_square : |T|^2 [S].
    weight : w_k [S, K].
    rank : R.
    fourth : E a^4 of gains with E a^2 = 1, independent of each other: 1 if they are 1, 2 for GBMA
        over Rayleigh fading (a = |h|, the same for both factors).
    """
    own = (fourth - 1.0) * squares + fourth * (nuclear.square() - squares) / rank
    pairs = (weight * nuclear).sum(-1).square() - (weight * nuclear).square().sum(-1)
    crossed = mean_square - (weight.square() * squares).sum(-1)
    return (weight.square() * own).sum(-1) + (pairs + crossed) / rank


def compute_inner_products(points: LowRank) -> Tensor:
    """Return <Theta_k, Theta_j> [S, K, K] of u [S, K, M, R], s [S, K, R], v [S, K, N, R]: from the
    factors alone, device by device, in K^2 R^2 (M + N) operations and S K R^2 numbers of memory."""
    u, v = points.u * points.s[:, :, None], points.v
    trials, devices, _, rank = u.shape
    all_u, all_v = (side.transpose(1, 2).flatten(2) for side in (u, v))  # [S, M or N, K R]
    rows = []
    for k in range(devices):
        both = torch.bmm(u[:, k].mT, all_u) * torch.bmm(v[:, k].mT, all_v)
        rows.append(both.view(trials, rank, devices, rank).sum((1, 3)))
    return torch.stack(rows, 1)
