"""Send as many bits a real as a device's share of the slot carries, by stochastic rounding between
each block's extremes.

Of one slot's channel uses every device gets as many, and they carry its bits at capacity: Lee,
Barnes, Ozgur 2020, "Over-the-Air Statistical Estimation", the digital side of their comparison,
here with a rate and so a depth of each device's own.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.base import get_trial_device
from otafl.core.contracts import Group, Tensors
from otafl.core.rng import Streams, declare_family
from otafl.uplink.delivery import Delivery
from otafl.uplink.digital.packets import rows_once

FITTED = declare_family("fitted", __name__)

MAX_BITS = 16
"""More than these change an update by less than 1e-5 of its range."""

RANGE_BITS = 64
"""Both ends of a block's range travel as floats."""


def fitting_depth(bits: Tensor, reals: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the whole bits a real that fit into so many bits, below 1 where not even one does; and
    the bits that are sent so, all [S, K]."""
    spare = bits - RANGE_BITS * blocks
    depth = (spare / reals.clamp_min(1.0)).floor().clamp(0.0, float(MAX_BITS))
    return depth, depth * reals + RANGE_BITS * blocks


def round_randomly(block: Tensor, depth: Tensor, draw: Tensor) -> Tensor:
    """Round rows [n, *shape] to 2^depth [n] equidistant levels between their extremes, up or down
    so that the mean is right; draw: [n, *shape] uniform in (0, 1)."""
    rows = block.flatten(1)
    low, high = rows.aminmax(dim=1, keepdim=True)
    levels = torch.exp2(depth.to(rows.dtype))[:, None] - 1.0
    step = (high - low) / levels.clamp_min(1.0)
    place = (rows - low) / step.where(step > 0, 1.0)
    level = torch.minimum((place + draw.flatten(1)).floor(), levels)
    return (low + step * level).view_as(block)


def quantise_to_fit(delivery: Delivery, depth: Tensor, streams: Streams) -> dict[int, Group]:
    """Return the uplink groups, by index, with every row rounded to its device's bits a real
    [S, K]."""
    received, cohort = {}, delivery.cohort
    for sent in delivery.uplink:
        index, group = sent.index, sent.group
        rows = rows_once(group, cohort, "over_budget: 'quantise'")
        pair, own = get_trial_device(group, cohort), depth.flatten()[cohort.flat_index[rows]]
        blocks: Tensors = {}
        for name, known in group.masked_tensors.items():
            shape = tuple(known.shape[1:])
            draw = streams.draw_device_uniform(FITTED / index / name, delivery.round, *pair, shape)
            blocks[name] = round_randomly(known, own, draw)
        received[index] = replace(group, tensors=blocks)
    return received
