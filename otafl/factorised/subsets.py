"""Choose random subsets of a row's numbers, and count what it takes to tell them."""

from __future__ import annotations

import torch
from torch import Tensor


def chosen(draw: Tensor, count: int) -> Tensor:
    """Return [n, P], 1 at the `count` largest of each row of independent uniform draws, else 0."""
    if count >= draw.shape[1]:
        return torch.ones_like(draw)
    place = draw.topk(count, dim=1, sorted=False).indices
    return torch.zeros_like(draw).scatter_(1, place, 1.0)


def bits(reals: int, count: int, positions: bool) -> float:
    """Count the bits of `count` numbers of 32 bits out of so many, and with `positions` of where
    they are: a list of ceil(log2 P) bits each, or a map of P bits, whichever is shorter."""
    where = min(count * (reals - 1).bit_length(), reals) if positions and count < reals else 0
    return float(32 * count + where)
