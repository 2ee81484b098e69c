"""Broadcasts, payloads and received aggregates: what the server and the devices exchange."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts.cohort import Cohort
from otafl.core.tensors import Tensors, take_rows, unsqueeze_like


@dataclass(frozen=True)
class Broadcast:
    """Tensors that the server sends to the devices.

    Parameters
    ----------
    tensors : dict of str to Tensor
        Tensors [S, *shape] that the devices of a trial share, or [N, *shape] in the order of the
        cohort if each device gets its own.
    per_device : bool
        Whether each device gets its own tensors.
    coordinates_per_row : Tensor, int64 [N], optional
        Number of coordinates that each row receives, if it needs only a part of the tensors.
    side_coordinates : int
        Coordinates beside the tensors that devices need for the codec; they arrive without error.
    """

    tensors: Tensors
    per_device: bool = False
    coordinates_per_row: Tensor | None = None
    side_coordinates: int = 0

    def expand_rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """Copy the tensors for the rows from start to stop of the cohort.

        Parameters
        ----------
        cohort : Cohort
            All rows of the round.
        start, stop : int
            First row, and the row after the last.

        Returns
        -------
        Broadcast
            Tensors [n, *shape] in memory of their own.
        """
        if self.per_device:
            blocks = {name: block[start:stop].clone() for name, block in self.tensors.items()}
        else:
            trial = cohort.trial[start:stop]
            blocks = {name: block.index_select(0, trial) for name, block in self.tensors.items()}
        return Broadcast(blocks, per_device=True)

    def view_rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """Return `expand_rows` for a reader that never writes to the tensors.

        They share the memory of the broadcast where it has one copy for all rows, or one for each.
        """
        if self.per_device:
            views = {name: block[start:stop] for name, block in self.tensors.items()}
        elif cohort.num_trials == 1:
            rows = stop - start
            views = {n: b.expand(rows, *b.shape[1:]) for n, b in self.tensors.items()}
        else:
            return self.expand_rows(cohort, start, stop)
        return Broadcast(views, per_device=True)

    def slice_rows(self, start: int, stop: int) -> Broadcast:
        """Return the tensors for the rows from start to stop of the cohort, without any copy."""
        if not self.per_device:
            return Broadcast(self.tensors)
        views = {name: block[start:stop] for name, block in self.tensors.items()}
        return Broadcast(views, per_device=True)

    def select_rows(self, keep: Tensor) -> Broadcast:
        """Return the broadcast to the rows of the cohort that `keep` [N] bool selects."""
        rows, tensors, coordinates = keep.nonzero()[:, 0], self.tensors, self.coordinates_per_row
        if self.per_device:
            tensors = {name: take_rows(block, rows) for name, block in tensors.items()}
        if coordinates is not None:
            coordinates = coordinates[rows]
        return replace(self, tensors=tensors, coordinates_per_row=coordinates)

    @property
    def num_coordinates(self) -> int:
        """The number of coordinates of one copy."""
        return sum(math.prod(block.shape[1:]) for block in self.tensors.values())

    @property
    def num_sent(self) -> int:
        """The number of coordinates of one copy, with those for the codec."""
        return self.num_coordinates + self.side_coordinates


Weighting = Literal["mean", "none", "equal"]
"""How a receiver weights the rows of a payload group."""


@dataclass(frozen=True)
class Group:
    """Rows of a payload that have the same shapes.

    Parameters
    ----------
    tensors : dict of str to Tensor [n, *shape]
        Values to send.
    row_index : Tensor, int64 [n], optional
        Rows of the cohort, ordered by trial. A row can occur in several groups, once in each. If
        not given, every row of the cohort occurs, in order.
    mask : dict of str to Tensor, optional
        Masks [n, *shape], or broadcastable to it, with 0 for coordinates that a row does not know.
    known_fraction : Tensor [n], optional
        Share of the coordinates that a row has according to a mask that the server knows
        beforehand. A digital uplink does not pay for the others. If not given, a row has all.
    power_factor : Tensor [n], optional
        Power of each row's symbols in this group, relative to its power budget of a symbol. It
        divides a device's energy between groups; 1 if not given.
    weighting : {"mean", "none", "equal"}
        "mean" asks the receiver for the mean under the weights of the cohort. "none" asks for the
        plain sum, for a method that applies the weights itself, as a product of two weighted sums
        would square them. "equal" asks for the plain sum too, for a codec that counts every device
        once; the receiver reports the delivered weight as for a mean.
    route : {"uplink", "ideal"}
        "ideal" for tensors that are transferred without errors.
    reason : str
        Why the route is ideal.

    Raises
    ------
    ValueError
        For the route "ideal" without a reason.
    """

    tensors: Tensors
    row_index: Tensor | None = None
    mask: Tensors | None = None
    known_fraction: Tensor | None = None
    power_factor: Tensor | None = None
    weighting: Weighting = "mean"
    route: Literal["uplink", "ideal"] = "uplink"
    reason: str = ""

    def __post_init__(self) -> None:
        if self.route == "ideal" and not self.reason:
            raise ValueError(
                "a payload group with route='ideal' must state its reason; got an empty reason"
            )

    @property
    def num_coordinates(self) -> int:
        """The number of coordinates of one row."""
        return sum(math.prod(block.shape[1:]) for block in self.tensors.values())

    @property
    def full_mask(self) -> Tensors | None:
        """Masks of all tensors in their shapes, ones where a tensor has none; None without any."""
        if self.mask is None:
            return None
        return {
            name: self.mask[name].expand_as(block) if name in self.mask else torch.ones_like(block)
            for name, block in self.tensors.items()
        }

    @property
    def masked_tensors(self) -> Tensors:
        """The tensors, with 0 for coordinates that a row does not know."""
        mask = self.full_mask
        if mask is None:
            return self.tensors
        return {name: block * mask[name] for name, block in self.tensors.items()}

    @staticmethod
    def join(groups: Sequence[Group], sizes: Sequence[int]) -> Group:
        """Join groups of several cohorts, one after the other.

        Parameters
        ----------
        groups : sequence of Group
            Groups with the same tensors.
        sizes : sequence of int
            Number of rows of each cohort.

        Returns
        -------
        Group
            Group of the concatenated cohorts.
        """
        first, rows, masks = groups[0], [], [group.full_mask for group in groups]
        for group, size, stop in zip(groups, sizes, itertools.accumulate(sizes), strict=True):
            every = torch.arange(size, device=next(iter(group.tensors.values())).device)
            rows.append((every if group.row_index is None else group.row_index) + stop - size)
        shares = [group.known_fraction for group in groups if group.known_fraction is not None]
        powers = [group.power_factor for group in groups if group.power_factor is not None]
        return replace(
            first,
            row_index=torch.cat(rows),
            tensors=_stack_tensors([group.tensors for group in groups]),
            mask=None
            if None in masks
            else _stack_tensors([mask for mask in masks if mask is not None]),
            known_fraction=torch.cat(shares) if len(shares) == len(groups) else None,
            power_factor=torch.cat(powers) if len(powers) == len(groups) else None,
        )

    def add_known_fraction(self) -> Group:
        """Return the group with the share of the coordinates that its mask leaves of each row."""
        mask = self.full_mask
        if mask is None:
            return self
        known = torch.stack([block.flatten(1).sum(1) for block in mask.values()]).sum(0)
        return replace(self, known_fraction=known / self.num_coordinates)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Group:
        """Return the group with every tensor of its rows changed, also `row_index` and masks.

        Parameters
        ----------
        change : callable
            Function of a tensor [n, ...].

        Returns
        -------
        Group
            The changed tensors; what is None stays None.
        """

        def change_one(one: Tensor | None) -> Tensor | None:
            return None if one is None else change(one)

        masks = self.mask
        return replace(
            self,
            tensors={name: change(block) for name, block in self.tensors.items()},
            row_index=change_one(self.row_index),
            mask=None if masks is None else {name: change(mask) for name, mask in masks.items()},
            known_fraction=change_one(self.known_fraction),
            power_factor=change_one(self.power_factor),
        )

    def select(self, keep: Tensor, renumber: Tensor) -> Group:
        """Select the part of the group whose cohort rows are kept.

        Parameters
        ----------
        keep : Tensor, bool [N]
            Rows of the cohort to keep.
        renumber : Tensor, int64 [N]
            New positions of the rows.

        Returns
        -------
        Group
            The kept rows.
        """
        rows = (
            self.row_index
            if self.row_index is not None
            else torch.arange(len(keep), device=keep.device)
        )
        inside = keep[rows].nonzero().squeeze(1)
        whole = replace(self, row_index=rows, mask=self.full_mask)
        some = whole.map_tensors(lambda block: block[inside])
        assert some.row_index is not None
        return replace(some, row_index=renumber[some.row_index])


Payload = tuple[Group, ...]
"""Groups that a cohort sends in one slot."""

DeliveredMasks = tuple[Tensor, ...]
"""Delivered coordinates of an update, bool [N, 1] for each payload group.

[N, P] if a part of a row's P coordinates can be missing.
"""


def _stack_tensors(several: Sequence[Tensors]) -> Tensors:
    """Concatenate tensors of the same names along the rows."""
    return {name: torch.cat([blocks[name] for blocks in several]) for name in several[0]}


@dataclass(frozen=True)
class Received:
    """Aggregates that the receiver gives to the method, one entry for each payload group.

    Parameters
    ----------
    mean : tuple of dict of str to Tensor [S, *shape]
        The (masked) weighted mean, or the sum for the weightings "none" and "equal".
    group_weight : tuple of Tensor [S], or of dict of str to Tensor [S, *shape]
        Delivered weight; a dict for a masked group, where 0 means that the old value stays. It is
        relative to 1, or for the weighting "none" the sum of the weights of the cohort.
    per_device : tuple of dict of str to Tensor [n, *shape], optional
        Updates of the devices, if the transport separates them.
    any_delivered : Tensor, bool [S], optional
        False for trials in which nothing was delivered, so that the server does not step; all True
        if not given.
    delivered_mask : tuple of Tensor, bool [n], optional
        Delivered rows of `per_device`, of which the others are 0; all rows if not given.
    coordinate_weight : tuple of dict of str to Tensor [S, *shape], optional
        Delivered weight of each coordinate, relative to 1, of a group without a mask whose devices
        can be silent in a part of it. If not given, `group_weight` is that of all coordinates.
    """

    mean: tuple[Tensors, ...]
    group_weight: tuple[Tensor | Tensors, ...]
    per_device: tuple[Tensors, ...] | None
    any_delivered: Tensor | None
    delivered_mask: tuple[Tensor | None, ...] | None = None
    coordinate_weight: tuple[Tensors | None, ...] | None = None

    def delivered_weight(self, group: int, name: str) -> Tensor:
        """Return the delivered weight of each coordinate of a tensor.

        Parameters
        ----------
        group : int
            Index of the payload group.
        name : str
            Name of the tensor.

        Returns
        -------
        Tensor [S, *shape], or [S, 1, ...] if it is the same for all coordinates
            Delivered weight.
        """
        count = self.group_weight[group]
        if isinstance(count, dict):
            return count[name]
        blocks = None if self.coordinate_weight is None else self.coordinate_weight[group]
        if blocks is not None and name in blocks:
            return blocks[name]
        return unsqueeze_like(count, self.mean[group][name])
