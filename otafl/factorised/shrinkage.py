"""Make weights sparse or low-rank: proximal maps of norms, and the projection that prunes. They are
batched over leading dimensions.

soft is the prox of the l1 norm, svt ("singular value thresholding": Cai, Candes, Shen 2010) that of
the nuclear norm, top the nearest matrix with so many entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.factorised.decomposition import count_eigh_flops


def soft_threshold(r: Tensor, threshold: Tensor) -> Tensor:
    """Return sgn(r) max(|r| - threshold, 0), threshold >= 0 broadcastable to r."""
    return r.abs().sub_(threshold).clamp_min_(0.0).copysign_(r)


def threshold_singular_values(matrix: Tensor, threshold: Tensor) -> Tensor:
    """Return U max(S - threshold, 0) V^T of each matrix [n, M, N] = U S V^T, threshold [n] >= 0.

    Taken off is U min(S, threshold) V^T = W V min(1, threshold / S) V^T, of which only V and S are
    needed: they come from the Gram matrix of the shorter side, in double precision. Singular values
    below 1e-8 of the largest are not resolved there, and they are not more than that in the
    result. Against an SVD this is as fast in single precision, twice as fast in double.
    """
    if matrix.shape[1] < matrix.shape[2]:
        return threshold_singular_values(matrix.mT, threshold).mT.contiguous()
    exact = _replace_nonfinite(matrix).double()
    values, vectors = torch.linalg.eigh(exact.mT @ exact)
    sigma = values.clamp_min(0.0).sqrt()
    share = threshold[:, None] / sigma.clamp_min(torch.finfo(sigma.dtype).tiny)
    taken = (vectors * share.clamp_max(1.0)[:, None]) @ vectors.mT
    return torch.baddbmm(matrix, matrix, taken.to(matrix.dtype), alpha=-1.0)


def count_svt_flops(rows: int, columns: int) -> float:
    """Count the operations of `threshold_singular_values` of one matrix: the Gram matrix of its
    shorter side, its eigenvectors, what is taken off there, and the product with it."""
    short, long = min(rows, columns), max(rows, columns)
    return 4.0 * long * short**2 + count_eigh_flops(short) + 2.0 * short**3 + long * short


def keep_largest(rows: Tensor, count: int) -> Tensor:
    """Return rows [n, P] with all but the `count` largest magnitudes of each at 0; exactly so
    many."""
    if count >= rows.shape[1]:
        return rows.clone()
    # magnitudes are ordered as their bits are, and integers are selected twice as fast
    bits = rows.abs().view(torch.int64 if rows.dtype == torch.float64 else torch.int32)
    index = bits.topk(count, dim=1, sorted=False).indices
    return torch.zeros_like(rows).scatter_(1, index, rows.gather(1, index))


def count_rank(matrix: Tensor, relative: float = 1e-3) -> Tensor:
    """Count singular values of each matrix [n, M, N] above this share of the largest, [n] float."""
    values = torch.linalg.svdvals(_replace_nonfinite(matrix))
    return (values > relative * values[:, :1]).sum(1).to(matrix.dtype)


def _replace_nonfinite(matrix: Tensor) -> Tensor:
    """Put what is not finite to 0: a trial that diverges must not end those it is stacked with."""
    return torch.nan_to_num(matrix, nan=0.0, posinf=0.0, neginf=0.0)
