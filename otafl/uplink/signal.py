"""Rows of a payload group that devices send, and sums over the devices of each trial."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group, Tensors
from otafl.models.base import flatten, unflatten

MIN_NORM, MAX_NORM = 1e-12, 1e18
"""Norms between which those of single precision are exact to rounding."""


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
    place : Tensor, int64 [P], or None
        Column of each coordinate of the tensors; they are in order if None.
    power_factor : Tensor, float [n], or None
        Power of a row's symbols relative to its budget; 1 if None (`Group.power_factor`).
    """

    index: int
    group: Group
    x: Tensor
    mask: Tensor | None
    cohort: Cohort
    share: Tensor | None = None
    place: Tensor | None = None
    power_factor: Tensor | None = None

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
        """Factors of the rows before they are summed, [n]: K w_k for a mean."""
        if not self.linear:
            return self.exact
        return self.exact * self.cohort.rows_beside

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
        in_order = flat if self.place is None else flat.index_select(1, self.place)
        return unflatten(in_order, self.shapes)


def make_signal(group: Group, cohort: Cohort, index: int = 0) -> Signal:
    """Make the signal of a group's rows that transmit.

    Repeated rows of a device are merged, and weights are normalised over the remaining rows.

    Parameters
    ----------
    group : Group
        The group as the devices have it.
    cohort : Cohort
        The N rows that take part.
    index : int
        Position of the group in its payload.

    Returns
    -------
    Signal
        The n rows.
    """
    x = flatten(group.tensors)
    known = group.full_mask
    mask = None if known is None else flatten(known).to(x.dtype)
    share, power = group.known_fraction, group.power_factor
    if group.row_index is not None or not cohort.all_transmit:
        rows = (
            torch.arange(cohort.num_rows, device=x.device)
            if group.row_index is None
            else group.row_index
        )
        keep = cohort.transmit_mask[rows].nonzero().squeeze(1)
        keep = keep[torch.argsort(rows[keep], stable=True)]  # `grid` needs them in order
        x, mask, rows = _merge_repeated(x[keep], None if mask is None else mask[keep], rows[keep])
        if power is not None:
            power = power[keep] if len(rows) == len(keep) else None  # merged rows have one power
        if share is not None:
            share = share[keep]
            if len(rows) < len(keep):  # rows of one device, merged
                share = None if mask is None else mask.mean(1)
        cohort = cohort.take(rows)
    return Signal(
        index=index,
        group=group,
        x=x if mask is None else x * mask,
        mask=mask,
        cohort=cohort,
        share=share,
        power_factor=power,
    )


def _merge_repeated(
    x: Tensor, mask: Tensor | None, rows: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Merge the rows of a device that occurs several times in a group to their mean.

    With a mask, it is the mean over the rows that have a coordinate.
    """
    unique, place = torch.unique(rows, return_inverse=True)
    if len(unique) == len(rows):
        return x, mask, rows
    known = torch.ones_like(x) if mask is None else mask
    added = x.new_zeros(len(unique), x.shape[1]).index_add_(0, place, x * known)
    share = x.new_zeros(len(unique), x.shape[1]).index_add_(0, place, known)
    merged = added / share.clamp_min(torch.finfo(x.dtype).tiny)
    return merged, None if mask is None else (share > 0).to(x.dtype), unique


def compute_error_free(sent: Signal) -> tuple[Tensors, Tensor | Tensors]:
    """Compute the aggregate and the weight that an error-free uplink delivers.

    Parameters
    ----------
    sent : Signal
        Rows of the group.

    Returns
    -------
    aggregate : Tensors [S, *shape]
        Mean, or sum.
    weight : Tensor [S], or Tensors [S, *shape]
        Delivered weight; of each coordinate if the rows have a mask.
    """
    flat = sent.sum(sent.exact.unsqueeze(1)).select(1, 0)
    if sent.mask is None and sent.out_of_one:
        return sent.blocks(flat), (sent.cohort.rows_per_trial > 0).to(flat.dtype)
    if sent.mask is None:
        return sent.blocks(flat), sent.sum_by_trial(sent.weight)
    reached = sum_masked_weights(sent)
    return sent.blocks(divide(flat, reached) if sent.linear else flat), sent.blocks(reached)


def sum_masked_weights(sent: Signal) -> Tensor:
    """Sum the weights of the rows that have each coordinate, [S, P]."""
    assert sent.mask is not None
    return sent.sum(sent.weight[:, None], sent.mask)[:, 0]


def divide(total: Tensor, weight: Tensor) -> Tensor:
    """Divide a total by a weight, both [S, P]; 0 where no device has the coordinate."""
    return torch.where(weight > 0, total / weight.clamp_min(1e-12), 0.0)


def divide_by_weights(
    sent: Signal, total: Tensor, exact: Tensor, reached: Tensor
) -> tuple[Tensor, Tensor, Tensors]:
    """Divide the sums of a group with a mask by the weights at each coordinate.

    Parameters
    ----------
    sent : Signal
        Rows of the group.
    total, exact : Tensor, float [S, P]
        Received and error-free sum. They are divided only if the group asks for a mean.
    reached : Tensor, float [S, P]
        Delivered weight of each coordinate.

    Returns
    -------
    tuple of Tensor [S, P], Tensor [S, P] and Tensors [S, *shape]
        Received and error-free aggregate, and the delivered weight.
    """
    if sent.linear:
        total, exact = divide(total, reached), divide(exact, sum_masked_weights(sent))
    return total, exact, sent.blocks(reached)


def select_rows(group: Group, cohort: Cohort) -> Tensors:
    """Return the update of each transmitting row, for transports that deliver each of them."""
    if group.row_index is None and cohort.all_transmit:
        return group.tensors
    sends = (
        cohort.transmit_mask if group.row_index is None else cohort.transmit_mask[group.row_index]
    )
    keep = sends.nonzero().squeeze(1)
    return {name: block[keep] for name, block in group.tensors.items()}


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


def compute_squared_distance(rows: Tensor, others: Tensor) -> Tensor:
    """Compute the squared norms [n] of the differences of rows, both [n, P], float64."""
    return compute_squared_norm(rows - others)
