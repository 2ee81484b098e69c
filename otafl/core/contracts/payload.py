"""Hold what travels between the server and the devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.tensors import Tensors, unsqueeze_like
from otafl.core.renamed import Renamed


@dataclass(frozen=True)
class Broadcast(Renamed):
    """Hold what the server sends down.

    Parameters
    ----------
    tensors : name -> [S, *shape], shared by the devices of a trial, or [N, *shape] in the cohort's
        order where each device gets its own.
    per_device : whether each device gets its own.
    coordinates_per_row : [N] int64, the real numbers that a copy for each row has, where it
        takes a part of the blocks only.
    """

    tensors: Tensors
    per_device: bool = False
    coordinates_per_row: Tensor | None = None

    def expand_rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """Return blocks [n, *shape] for the rows start..stop of the cohort, always a fresh copy."""
        if self.per_device:
            blocks = {name: block[start:stop].clone() for name, block in self.tensors.items()}
        else:
            trial = cohort.trial[start:stop]
            blocks = {name: block.index_select(0, trial) for name, block in self.tensors.items()}
        return Broadcast(blocks, per_device=True)

    @property
    def num_coordinates(self) -> int:
        """Count the real numbers in one copy."""
        return sum(math.prod(block.shape[1:]) for block in self.tensors.values())


Weighting = Literal["mean", "none", "equal"]


@dataclass(frozen=True)
class Group(Renamed):
    """Hold rows of a payload that have the same shapes.

    Parameters
    ----------
    tensors : name -> [n, *shape].
    row_index : [n] int64 into the cohort, ordered by trial; a row may occur more than once and in
        several groups. None: every cohort row once, in order.
    mask : name -> [n, *shape] or broadcastable, 0 where a row does not know a coordinate.
    known_fraction : [n], the part of its reals that a row has by a mask that the server knows
        beforehand; nobody pays for the others on a digital uplink. None: all.
    weighting : "mean" asks the receiver for the mean under the cohort's weights; "none" for the
        plain sum, for an algorithm that applies the weights to its blocks itself (a product of two
        weighted sums would square the weight); "equal" for the plain sum too, for a codec that
        counts every device once, and of which the weight that arrived is told as of a mean.
    route : "uplink", or "ideal" for blocks that are carried free of error.
    reason : why they are.

    Raises
    ------
    ValueError : for the route "ideal" without a reason.
    """

    tensors: Tensors
    row_index: Tensor | None = None
    mask: Tensors | None = None
    known_fraction: Tensor | None = None
    weighting: Weighting = "mean"
    route: Literal["uplink", "ideal"] = "uplink"
    reason: str = ""

    def __post_init__(self) -> None:
        if self.route == "ideal" and not self.reason:
            raise ValueError("a payload group on the ideal route must state its reason")

    @property
    def num_coordinates(self) -> int:
        """Count the real numbers in one row."""
        return sum(math.prod(block.shape[1:]) for block in self.tensors.values())

    @property
    def full_mask(self) -> Tensors | None:
        """Return a mask for every block and in its shape, ones where none is given; None without
        any.
        """
        if self.mask is None:
            return None
        return {
            name: self.mask[name].expand_as(block) if name in self.mask else torch.ones_like(block)
            for name, block in self.tensors.items()
        }

    @property
    def masked_tensors(self) -> Tensors:
        """Return the blocks, 0 where a row does not know a coordinate."""
        mask = self.full_mask
        if mask is None:
            return self.tensors
        return {name: block * mask[name] for name, block in self.tensors.items()}

    @staticmethod
    def join(groups: Sequence[Group], sizes: Sequence[int]) -> Group:
        """Return groups of cohorts of these sizes as one, of the cohorts one after the other."""
        first, rows, masks = groups[0], [], [group.full_mask for group in groups]
        for group, size, stop in zip(groups, sizes, itertools.accumulate(sizes), strict=True):
            every = torch.arange(size, device=next(iter(group.tensors.values())).device)
            rows.append((every if group.row_index is None else group.row_index) + stop - size)
        shares = [group.known_fraction for group in groups if group.known_fraction is not None]
        return replace(
            first,
            row_index=torch.cat(rows),
            tensors=_stack_tensors([group.tensors for group in groups]),
            mask=None
            if None in masks
            else _stack_tensors([mask for mask in masks if mask is not None]),
            known_fraction=torch.cat(shares) if len(shares) == len(groups) else None,
        )

    def add_known_fraction(self) -> Group:
        """Return the group with the share that its mask leaves of each row."""
        mask = self.full_mask
        if mask is None:
            return self
        known = torch.stack([block.flatten(1).sum(1) for block in mask.values()]).sum(0)
        return replace(self, known_fraction=known / self.num_coordinates)

    def select(self, keep: Tensor, renumber: Tensor) -> Group:
        """Return the part of the group whose cohort rows are kept.

        Parameters
        ----------
        keep : [N] bool.
        renumber : [N] int64, the rows' new numbers.
        """
        rows = (
            self.row_index
            if self.row_index is not None
            else torch.arange(len(keep), device=keep.device)
        )
        inside = keep[rows].nonzero().squeeze(1)
        mask = self.full_mask
        return replace(
            self,
            row_index=renumber[rows[inside]],
            tensors={name: block[inside] for name, block in self.tensors.items()},
            mask=None if mask is None else {name: m[inside] for name, m in mask.items()},
            known_fraction=None if self.known_fraction is None else self.known_fraction[inside],
        )


Payload = tuple[Group, ...]

DeliveredMasks = tuple[Tensor, ...]
"""What the server has received of an update: of each payload group [N, 1] bool, a row a device of
the cohort, or [N, P] where some of a row's P reals may be missing."""


def _stack_tensors(several: Sequence[Tensors]) -> Tensors:
    return {name: torch.cat([blocks[name] for blocks in several]) for name in several[0]}


@dataclass(frozen=True)
class Received(Renamed):
    """Hold what the receiver hands to the algorithm, one entry for each payload group.

    Parameters
    ----------
    mean : blocks [S, *shape]: the (masked) weighted mean, or the sum for weighting "none" and
        "equal".
    group_weight : weight that arrived: [S], or name -> [S, *shape] for a masked group (0: keep the
        old). Out of 1; for weighting "none" the sum of the cohort's weights, as they are.
    per_device : blocks [n, *shape] where the transport tells devices apart, else None.
    any_delivered : [S] bool, False where nothing came and the round is a no-op; None: all True.
    delivered_mask : [n] bool, which of the rows of `per_device` arrived (the others are 0); None
        where all did.
    coordinate_weight : weight that arrived out of 1 real by real, blocks [S, *shape], of a group
        without a mask whose devices can be silent in a part of it; None where `group_weight` is
        that of all reals.
    """

    mean: tuple[Tensors, ...]
    group_weight: tuple[Tensor | Tensors, ...]
    per_device: tuple[Tensors, ...] | None
    any_delivered: Tensor | None
    delivered_mask: tuple[Tensor | None, ...] | None = None
    coordinate_weight: tuple[Tensors | None, ...] | None = None

    def delivered_weight(self, group: int, name: str) -> Tensor:
        """Return the weight that arrived of a block of a group, real by real, [S, *shape]; [S, 1,
        ..] where it is the same of all reals."""
        count = self.group_weight[group]
        if isinstance(count, dict):
            return count[name]
        blocks = None if self.coordinate_weight is None else self.coordinate_weight[group]
        if blocks is not None and name in blocks:
            return blocks[name]
        return unsqueeze_like(count, self.mean[group][name])
