"""Updates in packets of their own, which are delivered or lost as a whole, and their rates.

A channel use carries at most

    log2(1 + SNR / gap)

bits, mean over the channel's cells, with the SNR after maximum-ratio combining of the server's
antennas. Otherwise its rate is that of a modulation and coding scheme of 5G NR up to 64-QAM: 3GPP
TS 38.214, table 5.1.3.1-1. Reserved rows are left out.

If bits are fitted to the slot, every device gets the same number of channel uses, which carry its
bits at capacity: Lee, Barnes, Ozgur 2020, "Over-the-Air Statistical Estimation", the digital side
of their comparison. Here each device has its own rate, and so its own number of bits per
coordinate, to which it rounds stochastically.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from otafl.codecs.base import get_trial_device
from otafl.core.contracts import (
    NOISE_VARIANCE,
    Cohort,
    Group,
    Tensors,
    TransmitLimits,
    unsqueeze_like,
)
from otafl.core.rng import Streams, declare_family
from otafl.core.tensors import get_constant
from otafl.models.base import flatten
from otafl.uplink.delivery import Delivery
from otafl.uplink.groups import compute_error_free, make_signal, select_rows
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.noise import draw_variance
from otafl.uplink.signal import Signal

FITTED = declare_family("fitted", __name__)

ROUNDING = 1e-5
"""Relative difference below which a rate counts as equal to what the channel carries."""

MAX_BITS = 16
"""Largest number of bits per coordinate; more change an update by less than 1e-5 of its range."""

RANGE_BITS = 64
"""Bits of the two ends of a tensor's range, as floats."""


class Mcs(NamedTuple):
    """Modulation and coding scheme.

    Parameters
    ----------
    order : int
        Bits of a QAM symbol, Q_m.
    rate_1024 : float
        Target code rate times 1024.
    """

    order: int
    rate_1024: float

    @property
    def efficiency(self) -> float:
        """Information bits per channel use."""
        return self.order * self.rate_1024 / 1024.0


MCS_TABLE = tuple(
    Mcs(order, rate)
    for order, rates in (
        (2, (120, 157, 193, 251, 308, 379, 449, 526, 602, 679)),
        (4, (340, 378, 434, 490, 553, 616, 658)),
        (6, (438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948)),
    )
    for rate in rates
)
"""Schemes of TS 38.214, table 5.1.3.1-1; a scheme's position is its I_MCS."""


def compute_snr(
    h: Tensor, h_hat: Tensor, power: Tensor, impairments: Impairments, round: int
) -> Tensor:
    """Compute the SNR after combining the server's antennas by estimates of the channels.

    Parameters
    ----------
    h, h_hat : Tensor, complex [S, K, A, cells]
        True channels, and their estimates.
    power : Tensor, float [S, K]
        Mean received power over the noise, before fading.
    impairments : Impairments
        Interference.
    round : int
        Round of interference.

    Returns
    -------
    Tensor, float [S, K, cells]
        The SNR.
    """
    norm = torch.linalg.vector_norm(h_hat, dim=2, keepdim=True)
    combiner = h_hat / norm.clamp_min(1e-30)
    gain = (combiner.conj() * h).sum(2).abs().square()
    flat = combiner.permute(0, 1, 3, 2).flatten(1, 2)  # [S, K * cells, A]
    noise = draw_variance(impairments, flat, round).view_as(gain) / NOISE_VARIANCE
    return power[..., None] * gain / noise


def bits_a_use(snr: Tensor) -> Tensor:
    """Compute the mean of log2(1 + SNR) over the cells, [S, K] of [S, K, cells]."""
    return torch.log1p(snr).mean(-1) / torch.log(get_constant(2.0, snr.dtype, snr.device))


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


def list_rows(group: Group, cohort: Cohort) -> Tensor:
    """Return the rows [n] of the cohort in a group."""
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
    if whole:
        for sent in delivery.uplink:
            delivery.give_exact(sent)
            delivery.note_delivered(sent)
        return
    cohort = delivery.cohort
    sends = cohort.transmit_mask & arrived.flatten()[cohort.flat_index]
    receiving = replace(cohort, transmit_mask=sends, all_transmit=False)
    for sent in delivery.uplink:
        delivered = read.get(sent.index, sent.group)
        got = make_signal(delivered, receiving)
        mean, count = compute_error_free(got)
        if sent.inverse is not None:
            weight = sent.exact * sent.inverse * sent.take_rows(arrived)
            mean = sent.blocks(sent.sum(weight[:, None])[:, 0])
        elif sent.out_of_one:
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
        rows = list_rows(group, cohort)
        pair, own = get_trial_device(group, cohort), depth.flatten()[cohort.flat_index[rows]]
        blocks: Tensors = {}
        for name, known in group.masked_tensors.items():
            shape = tuple(known.shape[1:])
            draw = streams.draw_device_uniform(FITTED / index / name, delivery.round, *pair, shape)
            blocks[name] = round_randomly(known, own, draw)
        received[index] = replace(group, tensors=blocks)
    return received
