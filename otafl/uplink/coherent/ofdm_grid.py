"""Lay the channel uses of a slot out on OFDM symbols: n sub-carriers at a time, each with a prefix.

The cells of the channel are what they are to symbols (`ChannelState.compute_cell_ends`): a
sub-carrier group of F is n / F neighbouring sub-carriers, which are filled one OFDM symbol after
the other. A coherence block begins with an OFDM symbol of its own; carriers that are left over in
its last one are empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.uplink.interleaving import Uses


@dataclass(frozen=True)
class Grid:
    """Hold where channel uses are sent.

    carriers, prefix: n sub-carriers, and the samples before each OFDM symbol. place: [L] int64,
    OFDM symbol times n plus sub-carrier of each channel use of the slot. starts: the first OFDM
    symbol of each coherence block, and the number of all.
    """

    carriers: int
    prefix: int
    place: Tensor
    starts: tuple[int, ...]

    @property
    def symbols(self) -> int:
        """Return the number of OFDM symbols."""
        return self.starts[-1]

    @property
    def samples(self) -> int:
        """Return the samples of the slot, prefixes included."""
        return self.symbols * (self.carriers + self.prefix)

    @property
    def repeats(self) -> float:
        """Return the samples of an OFDM symbol over those without its prefix."""
        return 1.0 + self.prefix / self.carriers

    def get_places(self, uses: Uses) -> Tensor:
        """Return the place [count] int64 of a group's channel uses."""
        if uses.at is None:
            return self.place[uses.start : uses.start + uses.count]
        return self.place[uses.at.to(self.place.device)]

    def sources(self, place: Tensor) -> Tensor:
        """Return which of a group's symbols at these places is sent on each sub-carrier, [symbols,
        n] int64; -1 for none of them."""
        count = len(place)
        found = place.new_full((self.symbols * self.carriers,), -1)
        found[place] = torch.arange(count, device=place.device)
        return found.view(self.symbols, self.carriers)


def lay_out(
    stops: Sequence[int], groups: int, carriers: int, prefix: int, device: torch.device
) -> Grid:
    """Lay out the channel uses of a slot.

    Parameters
    ----------
    stops : the channel use after which each cell of the channel ends, flattened over (B, F).
    groups : F, of which `carriers` is a multiple.
    carriers, prefix : as in `Grid`.
    """
    width = carriers // groups
    firsts = (0, *stops[:-1])
    lengths = tuple(stop - first for first, stop in zip(firsts, stops, strict=True))
    longest = [max(lengths[at : at + groups]) for at in range(0, len(lengths), groups)]
    starts = tuple(itertools.accumulate((-(-one // width) for one in longest), initial=0))

    def table(values: Sequence[int]) -> Tensor:
        return get_constant(tuple(values), torch.int64, device)

    use = torch.arange(stops[-1], device=device)
    cell = torch.repeat_interleave(table(lengths), output_size=stops[-1])
    nth = use - table(firsts)[cell]
    symbol = table(starts)[cell // groups] + nth // width
    place = symbol * carriers + cell % groups * width + nth % width
    return Grid(carriers, prefix, place, starts)
