"""Padding of minibatches: positions and weights of devices with fewer samples than others."""

from __future__ import annotations

import torch
from torch import Tensor


def list_positions(count: Tensor, width: int) -> Tensor:
    """Return the positions 0..count-1 of each row [n], then 0, int64 [n, width]."""
    order = torch.arange(width, device=count.device)
    return torch.where(order < count[:, None], order, 0)


def compute_sample_weights(count: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return 1/count in the first count [n] of `width` positions and 0 after them, [n, width]."""
    held = torch.arange(width, device=count.device) < count[:, None]
    return held.to(dtype) / count[:, None]
