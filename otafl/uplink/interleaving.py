"""Spread a payload's symbols over the cells of its channel, so that no layer rides on one fade.

A payload fills the channel's cells (coherence blocks, and in each its sub-carrier groups) in order.
Interleaved, the channel uses of a slot are dealt out at random to the groups of the payload, and
each group's reals are interleave. The permutations are the same in every round, as both ends must
know them, for every device, as sums over the air need, and in every trial, like the interleavers of
a standard. The error of the whole payload is the same in the mean; that of each part comes near it.

They are pseudo-random, not rows and columns: with C cells those send real i in cell i mod C, and
where C divides the width of a layer, all weights of a neuron share a cell again. To what bends
signals from symbol to symbol (carrier and timing offsets) a group's symbols follow each other, also
where another group's lie between them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.rng import Streams, declare_family
from otafl.uplink.signal import Signal

INTERLEAVING = declare_family("interleaving", __name__)


@dataclass(frozen=True)
class Uses:
    """Hold the channel uses of a slot that a group of a payload has. start: the first, where they
    follow each other. count: how many. at: [count] int64 on the host, in order, where they are
    scattered."""

    start: int
    count: int
    at: Tensor | None = None

    def count_before(self, use: Tensor) -> Tensor:
        """Return how many of them are before these channel uses of the slot, of any shape."""
        if self.at is None:
            return (use - self.start).clamp(0, self.count)
        return torch.searchsorted(self.at.to(use.device), use)


def take_in_order(lengths: Sequence[int]) -> list[Uses]:
    """Return the channel uses of groups of so many symbols that are sent one after the other."""
    starts = itertools.accumulate(lengths, initial=0)
    return [Uses(start, length) for start, length in zip(starts, lengths, strict=False)]


def scatter_uses(lengths: Sequence[int]) -> list[Uses]:
    """Return the channel uses of groups of so many symbols that are dealt out among them."""
    if len(lengths) == 1:
        return take_in_order(lengths)
    parts = permutation("slot", sum(lengths), torch.device("cpu"))[0].split(list(lengths))
    return [Uses(0, len(part), part.sort().values) for part in parts]


def interleave(sent: Signal) -> Signal:
    """Return the rows [n, P] of a group in the order in which their coordinates are sent."""
    order, place = permutation(str(sent.index), sent.num_coordinates, sent.x.device)
    mask = None if sent.mask is None else sent.mask.index_select(1, order)
    return replace(sent, x=sent.x.index_select(1, order), mask=mask, place=place)


@functools.lru_cache(maxsize=4)
@torch.inference_mode(False)  # gradients pass through what is taken in this order
def permutation(part: str, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the permutation [length] int64 of a part of a payload, which depends on nothing else,
    and its inverse."""
    draw = Streams([0], [0], device, torch.float64).draw_uniform(INTERLEAVING / part, 0, (length,))
    order = draw[0].argsort(stable=True)
    return order, order.argsort()
