"""Updates in packets of their own: one row of a device, which is delivered or lost as a whole.

If bits are fitted to the slot, every device gets the same number of channel uses, which carry its
bits at capacity: Lee, Barnes, Ozgur 2020, "Over-the-Air Statistical Estimation", the digital side
of their comparison. Here each device has its own rate, and so its own number of bits per
coordinate, to which it rounds stochastically.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.base import get_trial_device, has_repeated_devices
from otafl.core.contracts import Cohort, Group, Tensors, TransmitLimits, unsqueeze_like
from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_family
from otafl.models.base import flatten
from otafl.uplink.delivery import Delivery
from otafl.uplink.groups import compute_error_free, make_signal, select_rows
from otafl.uplink.signal import Signal

FITTED = declare_family("fitted", __name__)

ROUNDING = 1e-5
"""Relative difference below which a rate counts as equal to what the channel carries."""

MAX_BITS = 16
"""Largest number of bits per coordinate; more change an update by less than 1e-5 of its range."""

RANGE_BITS = 64
"""Bits of the two ends of a tensor's range, as floats."""


def repeat_packets(
    limits: TransmitLimits, cost: Tensor, arrived: Tensor
) -> tuple[Tensor | float, Tensor]:
    """Count how often each packet is sent, up to a crash, and return the delivered packets.

    A repetition was not planned, so it may exceed `max_symbols`, but a device without the energy
    for it does not send it.

    Parameters
    ----------
    limits : TransmitLimits
        Copies, energy and crashes.
    cost : Tensor, float [S, K]
        Energy of a packet, radiated and consumed by the device's circuits.
    arrived : Tensor, bool [S, K]
        Packets that are delivered if they are sent completely.

    Returns
    -------
    tuple of Tensor, float [S, K] (or 1.0), and Tensor, bool [S, K]
        Packets sent, and those that are delivered.
    """
    uses: Tensor | float = 1.0
    if limits.num_copies is not None:
        uses = limits.num_copies
        if limits.energy_budget is not None:
            paid = limits.energy_budget * (1.0 + ROUNDING) / cost.clamp_min(1e-30)
            uses = torch.minimum(uses, paid.floor().clamp_min(1.0))
    if limits.sent_fraction is not None:
        uses = uses * limits.sent_fraction
        arrived = arrived & (uses >= 1.0)
    return uses, arrived


def rows_once(group: Group, cohort: Cohort, setting: str) -> Tensor:
    """Return the rows [n] of the cohort in a group. Raises UserError if one occurs twice."""
    if has_repeated_devices(group):
        raise UserError(
            f"transport.{setting} needs one row per device, and the algorithm sends several rows "
            "of a device in one group; use the defaults of transport: digital"
        )
    if group.row_index is None:
        return torch.arange(cohort.num_rows, device=cohort.flat_index.device)
    return group.row_index


def hand_over(delivery: Delivery, read: Mapping[int, Group], arrived: Tensor, whole: bool) -> None:
    """Pass the server the mean over the delivered updates, and add up the error.

    Parameters
    ----------
    delivery : Delivery
        The payload.
    read : mapping of int to Group
        Groups that are not received as they were sent, by index.
    arrived : Tensor, bool [S, K]
        Devices whose update is delivered.
    whole : bool
        Whether all updates are delivered as they were sent.
    """
    cohort = delivery.cohort
    sends = cohort.transmit_mask & arrived.flatten()[cohort.flat_index]
    receiving = replace(cohort, transmit_mask=sends, all_transmit=False)
    for sent in delivery.uplink:
        if whole:
            delivery.give_exact(sent)
            delivery.note_delivered(sent)
            continue
        delivered = read.get(sent.index, sent.group)
        got = make_signal(delivered, receiving)
        mean, count = compute_error_free(got)
        if sent.out_of_one:
            count = _normalise_weight(count, sent, arrived)
        rows = slice(None) if delivered.row_index is None else delivered.row_index
        received = receiving.transmit_mask[rows][cohort.transmit_mask[rows]]
        each = {
            name: block.where(unsqueeze_like(received, block), 0.0)
            for name, block in select_rows(delivered, cohort).items()
        }
        delivery.give(sent, mean, count, each, received, delivered_fn=got.delivered_mask)
        delivery.note_delivered(got)
        delivery.add_error(flatten(mean), flatten(compute_error_free(sent)[0]))


def _normalise_weight(count: Tensor | Tensors, sent: Signal, arrived: Tensor) -> Tensor | Tensors:
    """Return the delivered weight out of that of all transmitters.

    `count` is the same out of the delivered weight.
    """
    share = (sent.grid(sent.weight) * arrived).sum(1)
    if isinstance(count, dict):
        return {name: c * unsqueeze_like(share, c) for name, c in count.items()}
    return share


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
