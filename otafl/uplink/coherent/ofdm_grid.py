"""OFDM symbols of a slot: its channel uses on n sub-carriers at a time, each symbol with a prefix.

The cells of the channel are those of single symbols (`ChannelState.compute_cell_ends`): each of F
sub-carrier groups has n / F neighbouring sub-carriers, which are filled one OFDM symbol after the
other. A coherence block begins with a new OFDM symbol; the remaining sub-carriers of its last one
are empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.uplink.signal import Uses


@dataclass(frozen=True)
class Grid:
    """Positions of channel uses on OFDM symbols and sub-carriers.

    Parameters
    ----------
    carriers : int
        Number of sub-carriers, n.
    prefix : int
        Samples before each OFDM symbol.
    place : Tensor, int64 [L]
        OFDM symbol times n plus sub-carrier, for each channel use of the slot.
    starts : tuple of int
        First OFDM symbol of each coherence block, and the number of all.
    """

    carriers: int
    prefix: int
    place: Tensor
    starts: tuple[int, ...]

    @property
    def symbols(self) -> int:
        """Number of OFDM symbols."""
        return self.starts[-1]

    @property
    def samples(self) -> int:
        """Samples of the slot, with prefixes."""
        return self.symbols * (self.carriers + self.prefix)

    @property
    def repeats(self) -> float:
        """Samples of an OFDM symbol over those without its prefix."""
        return 1.0 + self.prefix / self.carriers

    def get_places(self, uses: Uses) -> Tensor:
        """Return the positions [count] int64 of a group's channel uses."""
        if uses.at is None:
            return self.place[uses.start : uses.start + uses.count]
        return self.place[uses.at.to(self.place.device)]

    def sources(self, place: Tensor) -> Tensor:
        """Return the group's symbol on each sub-carrier, [symbols, n] int64; -1 for none."""
        count = len(place)
        found = place.new_full((self.symbols * self.carriers,), -1)
        found[place] = torch.arange(count, device=place.device)
        return found.view(self.symbols, self.carriers)


def lay_out(
    stops: Sequence[int], groups: int, carriers: int, prefix: int, device: torch.device
) -> Grid:
    """Lay out the channel uses of a slot on OFDM symbols.

    Parameters
    ----------
    stops : sequence of int
        Channel use after which each cell of the channel ends, flattened over (B, F).
    groups : int
        Number of sub-carrier groups, F, which divides `carriers`.
    carriers, prefix : int
        As in `Grid`.
    device : torch.device
        Device of the tensors.

    Returns
    -------
    Grid
        The positions.
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
