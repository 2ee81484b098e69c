"""Decompose matrices by singular values, whatever becomes of the others in the batch."""

from __future__ import annotations

import torch
from torch import Tensor


def svd(matrix: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, s and V^T of each matrix [n, a, b].

    A matrix that is not finite has singular values of NaN: a trial that diverges must not end those
    it is stacked with. One whose decomposition fails is decomposed in double precision, since
    drivers in single precision stop at some matrices that are sound. Raises
    torch.linalg.LinAlgError if that fails, too.
    """
    try:
        return torch.linalg.svd(matrix, full_matrices=full_matrices)
    except torch.linalg.LinAlgError:
        finite = matrix.isfinite().all(-1).all(-1)[:, None]
        sound = matrix.where(finite[..., None], 0.0)
        parts = zip(*(_alone(one, full_matrices) for one in sound), strict=True)
        u, s, vt = (torch.stack(part) for part in parts)
        return u, s.where(finite, torch.nan), vt


def _alone(matrix: Tensor, full_matrices: bool) -> tuple[Tensor, ...]:
    """Decompose one matrix [a, b]."""
    try:
        return tuple(torch.linalg.svd(matrix, full_matrices=full_matrices))
    except torch.linalg.LinAlgError:
        exact = torch.linalg.svd(matrix.double(), full_matrices=full_matrices)
        return tuple(part.to(matrix.dtype) for part in exact)
