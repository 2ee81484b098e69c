"""Interleaving of a payload's symbols over the cells of its channel.

A payload fills the channel's cells (coherence blocks, and in each its sub-carrier groups) in order,
so that a layer may have one fade. Interleaving assigns the channel uses of a slot to the groups of
the payload at random, and permutes the coordinates of each group. The permutations are the same in
every round, because both ends must know them, for every device, because the signals must add up,
and in every trial, like the interleavers of a standard. The mean error of the whole payload does
not change, and the error of each part comes near it.

The permutation is pseudo-random, not an interleaver of rows and columns. With C cells, that one
would send coordinate i in cell i mod C, so that all weights of a neuron share a cell if C divides
the width of a layer. Impairments that change from symbol to symbol (carrier and timing offsets)
treat a group's symbols as consecutive, even if symbols of another group are between them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from otafl.core.rng import Streams, declare_family
from otafl.uplink.signal import Signal, Uses

INTERLEAVING = declare_family("interleaving", __name__)


def scatter_uses(lengths: Sequence[int]) -> list[Uses]:
    """Return the channel uses of groups, given their numbers of symbols, assigned at random."""
    if len(lengths) == 1:
        return [Uses(0, lengths[0])]
    parts = permutation("slot", sum(lengths), torch.device("cpu"))[0].split(list(lengths))
    return [Uses(0, len(part), part.sort().values) for part in parts]


def interleave(sent: Signal) -> Signal:
    """Return the rows [n, P] of a group with their coordinates in the order of transmission."""
    order, place = permutation(str(sent.index), sent.num_coordinates, sent.x.device)
    mask = None if sent.mask is None else sent.mask.index_select(1, order)
    return replace(sent, x=sent.x.index_select(1, order), mask=mask, place=place)


@functools.lru_cache(maxsize=4)
def permutation(part: str, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw the permutation [length] int64 of a part of a payload, and its inverse.

    It depends only on the part's name and length.
    """
    with torch.inference_mode(False):  # gradients pass through what is taken in this order
        streams = Streams([0], [0], device, torch.float64)
        order = streams.draw_uniform(INTERLEAVING / part, 0, (length,))[0].argsort(stable=True)
        return order, order.argsort()
