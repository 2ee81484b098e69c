"""Cut a group's channel uses into segments, each of which is sent with one transmit scalar: where
the channel changes (its coherence blocks and sub-carrier groups), and where the normalisation does.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.uplink.interleaving import Uses
from otafl.uplink.signal import Signal, compute_squared_norm

MAX_LOOP = 16
"""Segments up to which a product for each costs less than a copy of the payload."""


@dataclass(frozen=True)
class Segments:
    """Where a group is cut.

    uses: its channel uses of the slot. bounds: Q stretches (first, stop) of them, in order and
    without gaps. cells: [Q] the channel's cell of each, flattened over (B, F). scopes: [Q] the
    normalised stretch of each. halves: real numbers in a channel use, 1 or 2.
    """

    uses: Uses
    bounds: tuple[tuple[int, int], ...]
    cells: tuple[int, ...]
    scopes: tuple[int, ...]
    halves: int

    @property
    def symbols(self) -> int:
        """Return the channel uses of the group."""
        return self.bounds[-1][1]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the channel uses of each segment, [Q]."""
        return tuple(stop - first for first, stop in self.bounds)

    @functools.cached_property
    def even(self) -> int:
        """Return the length of all segments but, perhaps, a shorter last one; 0 where they
        differ."""
        length = self.lengths[0]
        regular = all(one == length for one in self.lengths[:-1]) and self.lengths[-1] <= length
        return length if regular else 0

    def index_segments(self, device: torch.device) -> Tensor:
        """Return the segment of each channel use, [symbols] int64."""
        lengths = get_constant(self.lengths, torch.int64, device)
        return torch.repeat_interleave(lengths, output_size=self.symbols)

    def parts(self, rows: Tensor) -> list[Tensor]:
        """Return the one or two quadratures of reals [n, P]: [n, symbols], the second perhaps one
        short."""
        return [rows] if self.halves == 1 else [rows[:, : self.symbols], rows[:, self.symbols :]]

    def expand(self, values: Tensor, num_coordinates: int) -> Tensor:
        """Expand values [n, Q] of the segments to every coordinate, [n, num_coordinates]."""
        index_segments = values[:, self.index_segments(values.device)]
        return torch.cat([index_segments] * self.halves, 1)[:, :num_coordinates]

    def sum_over_scopes(self, values: Tensor) -> Tensor:
        """Return values [..., Q] of the segments summed over their normalised stretch, at each
        segment."""
        count = self.scopes[-1] + 1
        if count == len(self.scopes):
            return values
        index = get_constant(self.scopes, torch.int64, values.device)
        total = values.new_zeros(*values.shape[:-1], count).index_add_(-1, index, values)
        return total[..., index]


def cut(
    sent: Signal, uses: Uses, cell_stops: Sequence[int], blockwise: bool, quadrature: bool
) -> Segments:
    """Cut a group.

    Parameters
    ----------
    sent : the group's rows [n, P].
    uses : its channel uses, of the payload's.
    cell_stops : the channel use of the payload after which each cell (b, f) of the channel ends.
    blockwise : every block is normalised by itself, else the group as a whole.
    quadrature : two reals a channel use, else one.
    """
    halves = 2 if quadrature else 1
    symbols = -(-sent.num_coordinates // halves)
    scope_stops = sent.tensor_stops if blockwise else [symbols]
    ends = uses.count_before(torch.tensor(cell_stops)).tolist()
    inside = {end for end in ends if 0 < end < symbols}
    stops = sorted(inside.union(scope_stops))
    firsts = [0, *stops[:-1]]
    return Segments(
        uses=uses,
        bounds=tuple(zip(firsts, stops, strict=True)),
        cells=tuple(bisect.bisect_right(ends, first) for first in firsts),
        scopes=tuple(bisect.bisect_right(scope_stops, first) for first in firsts),
        halves=halves,
    )


def compute_energies(sent: Signal, segments: Segments) -> Tensor:
    """Return the sum of squares of each row's symbols in each segment, [n, Q]."""
    total = sent.x.new_zeros(len(sent.x), len(segments.bounds))
    for part in segments.parts(sent.x):
        length = segments.even
        whole = part.shape[1] // length if length and len(segments.bounds) > MAX_LOOP else 0
        if whole:
            runs = part[:, : whole * length].unflatten(1, (whole, length))
            total[:, :whole] += torch.linalg.vector_norm(runs, dim=2).square()
        for q, (first, stop) in enumerate(segments.bounds[whole:], whole):
            total[:, q] += compute_squared_norm(part[:, first:stop])
    return total


def compute_means(sent: Signal, segments: Segments) -> Tensor:
    """Return the mean of each normalised stretch, at each of its segments: [n, Q]."""
    total = sent.x.new_zeros(len(sent.x), len(segments.bounds))
    reals = total.new_zeros(len(segments.bounds))
    for part in segments.parts(sent.x):
        for q, (first, stop) in enumerate(segments.bounds):
            total[:, q] += part[:, first:stop].sum(1)
            reals[q] += part[:, first:stop].shape[1]
    return segments.sum_over_scopes(total) / segments.sum_over_scopes(reals)


def sum_segments(sent: Signal, part: Tensor, coefficient: Tensor, segments: Segments) -> Tensor:
    """Return sum_k coefficient[k, q, j] part[k] over the rows of a trial, with the coefficients of
    each column's segment: part [n, symbols or one less], coefficient [n, Q, J] -> [S, J, as
    many]."""
    trials, count = sent.cohort.num_trials, sent.cohort.counts[0]
    length = segments.even
    level = len(set(sent.cohort.counts)) == 1 and count > 0
    whole = 0
    sums = []
    if level and length and len(segments.bounds) > MAX_LOOP:
        whole = part.shape[1] // length
        runs = part[:, : whole * length].view(trials, count, whole, length)
        factor = coefficient[:, :whole].view(trials, count, whole, -1)
        sums.append(torch.einsum("skql,skqj->sjql", runs, factor).flatten(2))
    for q, (first, stop) in enumerate(segments.bounds[whole:], whole):
        if first < part.shape[1]:
            sums.append(sent.sum(coefficient[:, q], part[:, first:stop]))
    return sums[0] if len(sums) == 1 else torch.cat(sums, 2)
