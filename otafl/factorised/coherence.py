"""Generalised coherence of vectors, a measure of their distance from orthogonality.

References
----------
Gish, Cochran 1988, "Generalized Coherence".
"""

from __future__ import annotations

import torch
from torch import Tensor

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
