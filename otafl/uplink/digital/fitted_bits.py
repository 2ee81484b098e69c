"""Stochastic rounding to as many bits per coordinate as a device's share of the slot carries.

Every device gets the same number of the slot's channel uses, which carry its bits at capacity: Lee,
Barnes, Ozgur 2020, "Over-the-Air Statistical Estimation", the digital side of their comparison.
Here each device has its own rate, and so its own number of bits per coordinate.
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
"""Largest number of bits per coordinate; more change an update by less than 1e-5 of its range."""

RANGE_BITS = 64
"""Bits of the two ends of a tensor's range, as floats."""


def fitting_depth(bits: Tensor, num_coordinates: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the whole bits per coordinate that fit.

    Parameters
    ----------
    bits : Tensor, float [S, K]
        Bits that a device can send.
    num_coordinates : Tensor, float [S, K]
        Coordinates of its update.
    blocks : Tensor, float [S, K]
        Tensors of its update, each of which has a range.

    Returns
    -------
    depth : Tensor, float [S, K]
        Bits per coordinate, at most `MAX_BITS`; 0 if not even one fits.
    sent : Tensor, float [S, K]
        Bits that are sent.
    """
    spare = bits - RANGE_BITS * blocks
    depth = (spare / num_coordinates.clamp_min(1.0)).floor().clamp(0.0, float(MAX_BITS))
    return depth, depth * num_coordinates + RANGE_BITS * blocks


def round_randomly(block: Tensor, depth: Tensor, draw: Tensor) -> Tensor:
    """Round rows stochastically to 2^depth equidistant levels between their extremes.

    Parameters
    ----------
    block : Tensor, float [n, *shape]
        Rows of a tensor.
    depth : Tensor, float [n]
        Bits per coordinate.
    draw : Tensor, float [n, *shape]
        Uniform numbers in (0, 1).

    Returns
    -------
    Tensor, float [n, *shape]
        Rounded rows, unbiased.
    """
    rows = block.flatten(1)
    low, high = rows.aminmax(dim=1, keepdim=True)
    levels = torch.exp2(depth.to(rows.dtype))[:, None] - 1.0
    step = (high - low) / levels.clamp_min(1.0)
    place = (rows - low) / step.where(step > 0, 1.0)
    level = torch.minimum((place + draw.flatten(1)).floor(), levels)
    return (low + step * level).view_as(block)


def quantise_to_fit(delivery: Delivery, depth: Tensor, streams: Streams) -> dict[int, Group]:
    """Round every row of the uplink groups to its device's bits per coordinate.

    Parameters
    ----------
    delivery : Delivery
        The payload.
    depth : Tensor, float [S, K]
        Bits per coordinate.
    streams : Streams
        Random streams of the trials.

    Returns
    -------
    dict of int to Group
        Rounded groups by index.
    """
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
