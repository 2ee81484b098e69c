"""Sums over the devices of each trial: what every transport is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.contracts import Blocks, Cohort, Group, rows_per_trial
from otafl.models.base import flatten, unflatten


@dataclass(frozen=True)
class Signal:
    """A payload group ready to be summed, one row for each (trial, device) that sends it.

    x: [n, P]. mask: [n, P] or None. trial, device: [n] int64. weight: [n], summing to one over the
    rows of a trial. counts: rows of each trial, on the host. shapes: of the blocks, in order of
    their columns. linear: the receiver wants the weighted mean, not the plain sum.
    """

    x: Tensor
    mask: Tensor | None
    trial: Tensor
    device: Tensor
    weight: Tensor
    counts: tuple[int, ...]
    shapes: dict[str, tuple[int, ...]]
    linear: bool
    population: int

    @property
    def trials(self) -> int:
        return len(self.counts)

    @property
    def reals(self) -> int:
        """P."""
        return self.x.shape[1]

    @property
    def cell(self) -> Tensor:
        return self.trial * self.population + self.device

    def grid(self, values: Tensor, fill: float | bool = 0.0) -> Tensor:
        """values [n, ...] of the rows at their place in [S, K, ...]."""
        cells = self.trials * self.population
        if len(values) == cells:  # every device sends, and rows are in order
            table = values
        else:
            table = values.new_full((cells, *values.shape[1:]), fill)
            table = table.index_copy(0, self.cell, values)
        return table.view(self.trials, self.population, *values.shape[1:])

    def columns(self) -> list[tuple[int, int]]:
        """Where each block starts and stops in x."""
        stops, total = [], 0
        for shape in self.shapes.values():
            stops.append((total, total + math.prod(shape)))
            total = stops[-1][1]
        return stops

    def sum(self, coefficient: Tensor, x: Tensor | None = None) -> Tensor:
        """sum_k coefficient[k, j] x[k] over the rows of a trial: [n, J] -> [S, J, P]. `x` in place
        of the signal itself: [n, P']."""
        return weighted_sum(self.x if x is None else x, coefficient, self.trial, self.counts)

    def blocks(self, flat: Tensor) -> Blocks:
        """[S, P] as named blocks [S, *shape]."""
        return unflatten(flat, self.shapes)


def weighted_sum(x: Tensor, coefficient: Tensor, trial: Tensor, counts: Sequence[int]) -> Tensor:
    """[S, J, P] from x [n, P] and coefficient [n, J]; rows are ordered by trial [n]. Where all
    trials that have rows have equally many, one batched product reads x once."""
    present = [index for index, count in enumerate(counts) if count]
    shape = (len(counts), coefficient.shape[1], x.shape[1])
    if not present:
        return x.new_zeros(shape)
    if len({counts[index] for index in present}) == 1:
        k = counts[present[0]]
        part = torch.bmm(coefficient.view(len(present), k, -1).mT, x.view(len(present), k, -1))
        if len(present) == len(counts):
            return part
        return x.new_zeros(shape).index_copy_(0, torch.tensor(present, device=x.device), part)
    out = x.new_zeros(shape)
    for j in range(shape[1]):
        out[:, j].index_add_(0, trial, x * coefficient[:, j, None])
    return out


def signal(group: Group, cohort: Cohort) -> Signal:
    """The rows of a group that send, repeated rows of a device merged, weights normalised over
    what is left."""
    x = flatten(group.blocks)
    mask = _flat_mask(group, x)
    trial, device, weight, counts = cohort.trial, cohort.device, cohort.weight, cohort.counts
    if group.rows is not None or not cohort.all_send:
        rows = torch.arange(cohort.size, device=x.device) if group.rows is None else group.rows
        keep = cohort.sends[rows].nonzero().squeeze(1)
        x, rows = x[keep], rows[keep]
        mask = None if mask is None else mask[keep]
        x, mask, rows = _merge_repeated(x, mask, rows)
        trial, device, weight = trial[rows], device[rows], weight[rows]
        counts = rows_per_trial(trial, cohort.trials)
    if mask is not None:
        x = x * mask
    total = weight.new_zeros(cohort.trials).index_add_(0, trial, weight)
    return Signal(
        x,
        mask,
        trial,
        device,
        weight / total[trial],
        counts,
        {name: tuple(block.shape[1:]) for name, block in group.blocks.items()},
        group.weighting == "mean",
        cohort.population,
    )


def _merge_repeated(
    x: Tensor, mask: Tensor | None, rows: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """A device that appears several times in a group sends the mean of its rows: with a mask, the
    mean over the rows that know a coordinate."""
    unique, place = torch.unique(rows, return_inverse=True)
    if len(unique) == len(rows):
        return x, mask, rows
    known = torch.ones_like(x) if mask is None else mask
    added = x.new_zeros(len(unique), x.shape[1]).index_add_(0, place, x * known)
    share = x.new_zeros(len(unique), x.shape[1]).index_add_(0, place, known)
    merged = added / share.clamp_min(torch.finfo(x.dtype).tiny)
    if mask is None:
        return merged, None, unique
    return merged, (share > 0).to(x.dtype), unique


def _flat_mask(group: Group, x: Tensor) -> Tensor | None:
    if group.mask is None:
        return None
    columns = [
        group.mask[name].expand_as(block).flatten(1)
        if name in group.mask
        else torch.ones_like(block).flatten(1)
        for name, block in group.blocks.items()
    ]
    return torch.cat(columns, 1).to(x.dtype)


def error_free(sent: Signal) -> tuple[Blocks, Tensor | Blocks]:
    """The mean (or sum) that an undistorted uplink gives, and the weight that arrived: [S], or
    [S, *shape] blocks where there is a mask."""
    coefficient = sent.weight if sent.linear else torch.ones_like(sent.weight)
    flat = sent.sum(coefficient[:, None])[:, 0]
    if sent.mask is None:
        arrived = sent.weight.new_zeros(sent.trials).index_add_(0, sent.trial, sent.weight)
        return sent.blocks(flat), arrived
    reached = masked_weight(sent)
    return sent.blocks(divide(flat, reached) if sent.linear else flat), sent.blocks(reached)


def masked_weight(sent: Signal) -> Tensor:
    """[S, P]: the weight that knows each coordinate."""
    assert sent.mask is not None
    return sent.sum(sent.weight[:, None], sent.mask)[:, 0]


def divide(total: Tensor, weight: Tensor) -> Tensor:
    """total / weight, 0 where nobody knows the coordinate."""
    return torch.where(weight > 0, total / weight.clamp_min(1e-12), 0.0)


def each_row(group: Group, cohort: Cohort) -> Blocks:
    """What each sending row sent, for transports that tell devices apart."""
    if group.rows is None and cohort.all_send:
        return group.blocks
    keep = cohort.sends if group.rows is None else cohort.sends[group.rows]
    return {name: block[keep] for name, block in group.blocks.items()}
