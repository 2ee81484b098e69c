"""As many bits a real as a device's share of the slot carries, by stochastic rounding between each
block's extremes. Of one slot's channel uses every device gets as many, and they carry its bits at
capacity: Lee, Barnes, Ozgur 2020, "Over-the-Air Statistical Estimation", the digital side of their
comparison, here with a rate and so a depth of each device's own."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_BITS = 16
"""More than these change an update by less than 1e-5 of its range."""

RANGE_BITS = 64
"""Both ends of a block's range travel as floats."""


def depth(bits: Tensor, reals: Tensor, blocks: Tensor) -> Tensor:
    """Whole bits a real that fit into so many bits, all [S, K]; below 1 where not even one does."""
    spare = bits - RANGE_BITS * blocks
    return (spare / reals.clamp_min(1.0)).floor().clamp(0.0, float(MOST_BITS))


def bits_at(depth: Tensor, reals: Tensor, blocks: Tensor) -> Tensor:
    """What is sent at that depth, [S, K]."""
    return depth * reals + RANGE_BITS * blocks


def rounded(block: Tensor, depth: Tensor, draw: Tensor) -> Tensor:
    """Rows of [n, *shape] at 2^depth [n] equidistant levels between their extremes, up or down so
    that the mean is right; draw: [n, *shape] uniform in (0, 1)."""
    rows = block.flatten(1)
    low, high = rows.aminmax(dim=1, keepdim=True)
    levels = torch.exp2(depth.to(rows.dtype))[:, None] - 1.0
    step = (high - low) / levels.clamp_min(1.0)
    place = (rows - low) / step.where(step > 0, 1.0)
    level = torch.minimum((place + draw.flatten(1)).floor(), levels)
    return (low + step * level).view_as(block)
