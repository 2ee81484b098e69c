"""Segments of a group: stretches of channel uses that are sent with one transmit scalar.

A segment ends where the channel changes (coherence blocks and sub-carrier groups) and where the
normalised stretch ends.
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
"""Number of segments up to which a product for each costs less than a copy of the payload."""


@dataclass(frozen=True)
class Segments:
    """Segments of a group.

    Parameters
    ----------
    uses : Uses
        Channel uses of the group in the slot.
    bounds : tuple of (int, int)
        Q stretches (first, stop) of the channel uses, in order and without gaps.
    cells : tuple of int [Q]
        Cell of the channel of each segment, flattened over (B, F).
    scopes : tuple of int [Q]
        Normalised stretch of each segment.
    halves : int
        Real numbers in a channel use, 1 or 2.
    """

    uses: Uses
    bounds: tuple[tuple[int, int], ...]
    cells: tuple[int, ...]
    scopes: tuple[int, ...]
    halves: int

    @property
    def symbols(self) -> int:
        """Channel uses of the group."""
        return self.bounds[-1][1]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Channel uses of each segment, [Q]."""
        return tuple(stop - first for first, stop in self.bounds)

    @functools.cached_property
    def even(self) -> int:
        """Common length of all segments except a shorter last one; 0 if lengths differ."""
        length = self.lengths[0]
        regular = all(one == length for one in self.lengths[:-1]) and self.lengths[-1] <= length
        return length if regular else 0

    def index_segments(self, device: torch.device) -> Tensor:
        """Return the segment of each channel use, [symbols] int64."""
        lengths = get_constant(self.lengths, torch.int64, device)
        return torch.repeat_interleave(lengths, output_size=self.symbols)

    def parts(self, rows: Tensor) -> list[Tensor]:
        """Split coordinates [n, P] into one or two quadratures [n, symbols].

        The second quadrature may be one symbol shorter.
        """
        return [rows] if self.halves == 1 else [rows[:, : self.symbols], rows[:, self.symbols :]]

    def expand(self, values: Tensor, num_coordinates: int) -> Tensor:
        """Expand values [n, Q] of the segments to every coordinate, [n, num_coordinates]."""
        by_use = values[:, self.index_segments(values.device)]
        return torch.cat([by_use] * self.halves, 1)[:, :num_coordinates]

    def sum_over_scopes(self, values: Tensor) -> Tensor:
        """Sum values [..., Q] over the normalised stretch of each segment, [..., Q]."""
        count = self.scopes[-1] + 1
        if count == len(self.scopes):
            return values
        index = get_constant(self.scopes, torch.int64, values.device)
        total = values.new_zeros(*values.shape[:-1], count).index_add_(-1, index, values)
        return total[..., index]


def cut(
    sent: Signal, uses: Uses, cell_stops: Sequence[int], blockwise: bool, quadrature: bool
) -> Segments:
    """Cut a group into segments.

    Parameters
    ----------
    sent : Signal
        Rows of the group, [n, P].
    uses : Uses
        Channel uses of the group in the slot.
    cell_stops : sequence of int
        Channel use of the payload after which each cell (b, f) of the channel ends.
    blockwise : bool
        Whether each tensor is normalised separately, instead of the whole group.
    quadrature : bool
        Whether a channel use carries two real numbers instead of one.

    Returns
    -------
    Segments
        The segments.
    """
    halves = 2 if quadrature else 1
    symbols = -(-sent.num_coordinates // halves)
    scope_stops = sent.tensor_stops if blockwise else [symbols]
    ends = uses.list_before(cell_stops)
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
    """Compute the sum of squares of each row's symbols in each segment, [n, Q] float64."""
    if len(segments.bounds) == segments.halves == 1:
        return compute_squared_norm(sent.x)[:, None]
    total = sent.x.new_zeros(len(sent.x), len(segments.bounds), dtype=torch.float64)
    for part in segments.parts(sent.x):
        length = segments.even
        whole = part.shape[1] // length if length and len(segments.bounds) > MAX_LOOP else 0
        if whole:
            runs = part[:, : whole * length].unflatten(1, (whole, length))
            total[:, :whole] += compute_squared_norm(runs)
        for q, (first, stop) in enumerate(segments.bounds[whole:], whole):
            total[:, q] += compute_squared_norm(part[:, first:stop])
    return total


def compute_means(sent: Signal, segments: Segments) -> Tensor:
    """Compute the mean of each row's normalised stretch, at each of its segments: [n, Q]."""
    total = sent.x.new_zeros(len(sent.x), len(segments.bounds))
    num_coordinates = total.new_zeros(len(segments.bounds))
    for part in segments.parts(sent.x):
        for q, (first, stop) in enumerate(segments.bounds):
            total[:, q] += part[:, first:stop].sum(1)
            num_coordinates[q] += part[:, first:stop].shape[1]
    return segments.sum_over_scopes(total) / segments.sum_over_scopes(num_coordinates)


def sum_segments(sent: Signal, part: Tensor, coefficient: Tensor, segments: Segments) -> Tensor:
    """Sum the rows of each trial with coefficients that depend on the segment.

    Parameters
    ----------
    sent : Signal
        The n rows.
    part : Tensor, float [n, L]
        One quadrature of the rows, L = symbols or one less.
    coefficient : Tensor [n, Q, J]
        Coefficients of each row and segment.
    segments : Segments
        Segments of the columns.

    Returns
    -------
    Tensor [S, J, L]
        The J weighted sums over the rows of a trial.
    """
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
