"""Unit vectors."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-30


def normalised(combiner: Tensor) -> Tensor:
    """f / |f| of [..., A] complex; the first antenna where f is zero."""
    norm = torch.linalg.vector_norm(combiner, dim=-1, keepdim=True)
    first = torch.zeros_like(combiner)
    first[..., 0] = 1.0
    return torch.where(norm > TINY, combiner / norm.clamp_min(TINY), first)
