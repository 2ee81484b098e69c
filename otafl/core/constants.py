"""Small tensors of numbers that the host knows, sent to a GPU once."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


@functools.lru_cache(maxsize=1024)
def get_constant(
    values: float | tuple[float | tuple[float, ...], ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the numbers as a tensor, the same one in every call. Do not write to it."""
    with torch.inference_mode(False):  # a later caller may take gradients
        return torch.tensor(values, dtype=dtype, device=device)
