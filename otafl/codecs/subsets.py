"""Choose some of a row's numbers, and count the bits that it takes to send them.

Sent are 32 bits a number, and where the numbers are: a list of positions of ceil(log2 P) bits each,
or a map of P bits, whichever is shorter.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor


def positions() -> bool:
    """Declare whether positions are counted."""
    counted: bool = Field(
        True,
        description="count the bits that tell which numbers are sent; not needed where both ends "
        "draw the same subset from a shared seed",
    )
    return counted


def kept(share: float, reals: int) -> int:
    """Return how many of so many numbers are kept, at least one."""
    return max(1, round(share * reals))


def random_subset(draw: Tensor, count: int) -> Tensor:
    """Return 1 at the `count` largest of each row of independent uniform draws, else 0: [n, P]."""
    if count >= draw.shape[1]:
        return torch.ones_like(draw)
    place = draw.topk(count, dim=1, sorted=False).indices
    return torch.zeros_like(draw).scatter_(1, place, 1.0)


def subset_bits(reals: int, count: int, positions: bool = True) -> int:
    """Return the bits of `count` of so many numbers, and with `positions` of where they are."""
    where = min(count * (reals - 1).bit_length(), reals) if positions and count < reals else 0
    return 32 * count + where
