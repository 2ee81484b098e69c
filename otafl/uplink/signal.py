"""What a device has to send: rows of a payload group, their segments, and sums over devices.

A segment is a stretch of channel uses that is sent with one transmit scalar. It ends where the
channel changes (coherence blocks and sub-carrier groups) and where the normalised stretch ends.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group, Tensors
from otafl.core.tensors import get_constant

MIN_NORM, MAX_NORM = 1e-12, 1e18
"""Norms between which those of single precision are exact to rounding."""

LOOP_FROM = 2048
"""Numbers in a segment of all rows from which a loop over segments costs less than a copy."""


@dataclass(frozen=True)
class Signal:
    """Rows of a payload group that devices send, one for each (trial, device).

    Parameters
    ----------
    index : int
        Position of the group in its payload, after which its random streams are named.
    group : Group
        The group as the devices have it.
    x : Tensor, float [n, P]
        Symbols, 0 where a row does not have a coordinate.
    mask : Tensor, float [n, P], or None
        1 where a row has a coordinate, else 0.
    cohort : Cohort
        The n rows.
    share : Tensor, float [n], or None
        Fraction of its coordinates that a row has; all if None (`Group.known_fraction`).
    power_factor : Tensor, float [n], or None
        Power of a row's symbols relative to its budget; 1 if None (`Group.power_factor`).
    inverse : Tensor, float [n], or None
        Inverse probability of delivery, by which a weight is multiplied; weights are normalised
        over the delivered rows if None.
    """

    index: int
    group: Group
    x: Tensor
    mask: Tensor | None
    cohort: Cohort
    share: Tensor | None = None
    power_factor: Tensor | None = None
    inverse: Tensor | None = None

    @property
    def num_coordinates(self) -> int:
        """Coordinates of a row, P."""
        return self.x.shape[1]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors, in order of their columns."""
        return {name: tuple(block.shape[1:]) for name, block in self.group.tensors.items()}

    @property
    def linear(self) -> bool:
        """Whether the receiver wants the weighted mean, not the plain sum."""
        return self.group.weighting == "mean"

    @property
    def weight(self) -> Tensor:
        """Weights of the rows, [n].

        They sum to one over the rows of a trial. For a sum of unequal rows, they are those of the
        cohort as the algorithm applied them.
        """
        return self.cohort.normalised_weight if self.out_of_one else self.cohort.weight

    @property
    def out_of_one(self) -> bool:
        """Whether the weights of a trial sum to one."""
        return self.group.weighting in ("mean", "equal")

    @property
    def exact(self) -> Tensor:
        """Coefficients of the rows in the error-free aggregate, [n]."""
        return self.weight if self.linear else torch.ones_like(self.weight)

    @property
    def scale(self) -> Tensor:
        """Factors of the rows before they are summed, [n]: K w_k, or K w_k / p_k, for a mean."""
        if not self.linear:
            return self.exact
        scale = self.exact * self.cohort.rows_per_trial[self.cohort.trial]
        return scale if self.inverse is None else scale * self.inverse

    def empty_sum(self) -> Tensor:
        """Return an uninitialised tensor for a sum over the rows of each trial, [S, P]."""
        return self.x.new_empty(self.cohort.num_trials, self.num_coordinates)

    def grid(self, values: Tensor, fill: float | bool = 0.0) -> Tensor:
        """Put values [n, ...] of the rows at their place in [S, K, ...]."""
        return self.cohort.scatter_to_grid(values, fill)

    def take_rows(self, table: Tensor) -> Tensor:
        """Select the rows of a table [S, K, ...], [n, ...]."""
        table = table.flatten(0, 1)
        return table if len(table) == len(self.x) else table.index_select(0, self.cohort.flat_index)

    @property
    def transmitter_mask(self) -> Tensor:
        """Transmitters, [S, K] bool."""
        return self.grid(self.cohort.transmit_mask, False)

    @property
    def delivered_mask(self) -> Callable[[], Tensor]:
        """Function as in `LinkReport.delivered_mask_fns`, for rows that are delivered completely.

        It keeps no tensor of the payload's size.
        """
        return functools.partial(self.cohort.scatter_to_grid, self.cohort.transmit_mask, False)

    @property
    def transmitted_share(self) -> Tensor:
        """Fraction of its coordinates that each device sends, [S, K]; 0 for silent devices."""
        sends = self.cohort.transmit_mask.to(self.x.dtype)
        return self.grid(sends if self.share is None else sends * self.share)

    @property
    def tensor_stops(self) -> list[int]:
        """Column after which each tensor ends in x."""
        return list(itertools.accumulate(math.prod(shape) for shape in self.shapes.values()))

    def scale_budget(self, budget: Tensor) -> Tensor:
        """Return the power budgets [S, K] of the group's symbols, from those of all symbols."""
        if self.power_factor is None:
            return budget
        return budget * self.grid(self.power_factor.to(budget.dtype), 1.0)

    def sum_by_trial(self, values: Tensor) -> Tensor:
        """Sum values [n, ...] of the rows over each trial, [S, ...]."""
        total = values.new_zeros(self.cohort.num_trials, *values.shape[1:])
        return total.index_add_(0, self.cohort.trial, values)

    def sum(self, coefficient: Tensor, x: Tensor | None = None) -> Tensor:
        """Compute sum_k coefficient[k, j] x[k] over the rows of each trial.

        If all trials that have rows have equally many, one batched product reads x once.

        Parameters
        ----------
        coefficient : Tensor [n, J]
            Coefficients of the rows in J sums.
        x : Tensor [n, P'], optional
            Rows to sum instead of the signal's.

        Returns
        -------
        Tensor [S, J, P']
            The sums.
        """
        x, counts = self.x if x is None else x, self.cohort.counts
        present = [index for index, count in enumerate(counts) if count]
        out = (len(counts), coefficient.shape[1], x.shape[1])
        if not present:
            return x.new_zeros(out)
        if len({counts[index] for index in present}) > 1:
            parts = [self.sum_by_trial(x * column[:, None]) for column in coefficient.unbind(1)]
            return torch.stack(parts, 1)
        rows = (len(present), counts[present[0]], -1)
        part = torch.bmm(coefficient.view(rows).mT, x.view(rows))
        if len(present) == len(counts):
            return part
        return x.new_zeros(out).index_copy_(0, torch.tensor(present, device=x.device), part)

    def blocks(self, flat: Tensor) -> Tensors:
        """Return columns [S, P] as named tensors [S, *shape]."""
        parts = flat.tensor_split(self.tensor_stops[:-1], dim=1)
        shapes = self.shapes.items()
        return {
            name: part.view(len(flat), *shape)
            for (name, shape), part in zip(shapes, parts, strict=True)
        }


def split_columns(count: int, width: int) -> Iterator[slice]:
    """Yield slices of `width` of so many columns, which are processed at a time."""
    for first in range(0, count, width):
        yield slice(first, min(first + width, count))


def compute_squared_norm(rows: Tensor) -> Tensor:
    """Compute the squared norms [...] of rows [..., P], float64.

    Squares of single precision underflow below 1e-19 and overflow above 1e19. Rows whose norm is
    near these limits are read again in double precision.
    """
    if not rows.is_cpu:  # a look at the norms would make the host wait
        return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).square()
    norms = torch.linalg.vector_norm(rows, dim=-1).double()
    exact = (norms > MIN_NORM) & (norms < MAX_NORM)
    if not bool(exact.all()):
        again = torch.linalg.vector_norm(rows[~exact], dim=-1, dtype=torch.float64)
        norms = norms.index_put((~exact,), again)
    return norms.square()


@dataclass(frozen=True)
class Segments:
    """Segments of a group.

    Parameters
    ----------
    uses : range
        Symbols of the group in the slot, of `Slot.uses_per_symbol` channel uses each.
    bounds : tuple of (int, int)
        Q stretches (first, stop) of the symbols, in order and without gaps.
    cells : tuple of int [Q]
        Cell of the channel of each segment, flattened over (B, F).
    scopes : tuple of int [Q]
        Normalised stretch of each segment.
    halves : int
        Real numbers in a symbol, 1 or 2.
    """

    uses: range
    bounds: tuple[tuple[int, int], ...]
    cells: tuple[int, ...]
    scopes: tuple[int, ...]
    halves: int

    @property
    def symbols(self) -> int:
        """Number of symbols of the group."""
        return self.bounds[-1][1]

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """Symbols of each segment, [Q]."""
        return tuple(stop - first for first, stop in self.bounds)

    def are_short(self, rows: int) -> bool:
        """Return whether each symbol of some rows takes less time by itself than each segment."""
        return len(self.bounds) > 1 and rows * self.symbols < LOOP_FROM * len(self.bounds)

    def index_segments(self, device: torch.device) -> Tensor:
        """Return the segment of each channel use, [symbols] int64."""
        lengths = get_constant(self.lengths, torch.int64, device)
        return torch.repeat_interleave(lengths, output_size=self.symbols)

    def split(self, columns: slice) -> Iterator[tuple[int, slice]]:
        """Yield the number of each segment in consecutive columns, and its part of the columns."""
        first, stop = columns.start, columns.stop
        q = bisect.bisect_right(self.bounds, first, key=lambda bound: bound[1])
        while q < len(self.bounds) and self.bounds[q][0] < stop:
            start, end = self.bounds[q]
            yield q, slice(max(start, first) - first, min(end, stop) - first)
            q += 1

    def sum(self, values: Tensor) -> Tensor:
        """Sum values [..., C] of the first C symbols over each segment, [..., Q]."""
        total = values.new_zeros(*values.shape[:-1], len(self.bounds))
        index = self.index_segments(values.device)[: values.shape[-1]]
        return total.scatter_add_(-1, index.expand_as(values), values)

    def parts(self, rows: Tensor) -> list[Tensor]:
        """Split coordinates [n, P] into one or two quadratures [n, symbols].

        The second quadrature may be one symbol shorter.
        """
        return [rows] if self.halves == 1 else [rows[:, : self.symbols], rows[:, self.symbols :]]

    def get_lengths(self, like: Tensor) -> Tensor:
        """Return the channel uses [Q] of the segments, in the precision of another tensor."""
        if len(self.bounds) == 1:
            return like.new_full((1,), self.symbols)
        return get_constant(self.lengths, like.dtype, like.device)

    def expand(self, values: Tensor, num_coordinates: int) -> Tensor:
        """Expand values [n, Q] of the segments to every coordinate, [n, num_coordinates]."""
        if len(self.bounds) == 1:
            return values.expand(-1, num_coordinates)
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


@functools.lru_cache(maxsize=32)
def cut(
    uses: range,
    cell_stops: tuple[int, ...],
    scope_stops: tuple[int, ...] = (),
    quadrature: bool = False,
) -> Segments:
    """Cut a group into segments.

    Parameters
    ----------
    uses : range
        Symbols of the group in the slot.
    cell_stops : tuple of int
        Symbol of the payload after which each cell (b, f) of the channel ends.
    scope_stops : tuple of int, optional
        Symbols of the group after which each normalised stretch ends; one stretch if empty.
    quadrature : bool
        Whether a channel use carries two real numbers instead of one.

    Returns
    -------
    Segments
        The segments.
    """
    scope_stops = scope_stops or (len(uses),)
    ends = [min(max(stop - uses.start, 0), len(uses)) for stop in cell_stops]
    inside = {end for end in ends if 0 < end < len(uses)}
    stops = sorted(inside.union(scope_stops))
    firsts = [0, *stops[:-1]]
    return Segments(
        uses=uses,
        bounds=tuple(zip(firsts, stops, strict=True)),
        cells=tuple(bisect.bisect_right(ends, first) for first in firsts),
        scopes=tuple(bisect.bisect_right(scope_stops, first) for first in firsts),
        halves=2 if quadrature else 1,
    )


def compute_energies(x: Tensor, segments: Segments) -> Tensor:
    """Compute the sum of squares of symbols [n, P] of rows in each segment, [n, Q] float64."""
    total = x.new_zeros(len(x), len(segments.bounds), dtype=torch.float64)
    for part in segments.parts(x):
        if segments.are_short(len(x)):
            total += segments.sum(part.double().square())
        else:
            for q, columns in segments.split(slice(0, part.shape[1])):
                total[:, q] += compute_squared_norm(part[:, columns])
    return total


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
    if segments.are_short(len(part)):
        index = segments.index_segments(part.device)[: part.shape[1]]
        index = index.expand(*coefficient.shape[::2], -1)
        return sent.sum_by_trial(part[:, None] * coefficient.mT.gather(2, index))
    stretches = segments.split(slice(0, part.shape[1]))
    sums = [sent.sum(coefficient[:, q], part[:, columns]) for q, columns in stretches]
    return sums[0] if len(sums) == 1 else torch.cat(sums, 2)


def sum_quadratures(sent: Signal, gain: Tensor, segments: Segments) -> Tensor:
    """Sum the rows of each trial with complex gains of their symbols.

    Parameters
    ----------
    sent : Signal
        The n rows.
    gain : Tensor, complex [n, Q, J]
        Gains of each row and segment in J sums.
    segments : Segments
        Segments of the group.

    Returns
    -------
    Tensor, float [S, J, P]
        The real parts of the sums, and the imaginary ones if symbols have two quadratures.
    """
    if segments.halves == 1:
        return sum_segments(sent, sent.x, gain.real, segments)
    columns, count = torch.cat([gain.real, gain.imag], 2), gain.shape[2]
    one, two = (sum_segments(sent, part, columns, segments) for part in segments.parts(sent.x))
    width = two.shape[2]  # the second quadrature may be one symbol short
    real, imag = one[:, :count], two[:, :count]
    real[:, :, :width] -= two[:, count:]
    return torch.cat([real, imag + one[:, count:, :width]], 2)
