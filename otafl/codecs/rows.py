"""Say what codecs need to know of a payload group's rows."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group
from otafl.core.errors import UserError
from otafl.models.base import flatten

Shapes = dict[str, tuple[int, ...]]


def shapes_of(group: Group) -> Shapes:
    """Return the shapes of the blocks of one row."""
    return {name: tuple(block.shape[1:]) for name, block in group.blocks.items()}


def known_columns(group: Group) -> tuple[Tensor, Tensor | None]:
    """Return the blocks side by side [n, P], 0 where unknown, and the mask [n, P]."""
    mask = group.full_mask
    columns = flatten(group.known)
    return columns, None if mask is None else flatten(mask).to(columns.dtype)


def pairs(group: Group, cohort: Cohort) -> tuple[Tensor, Tensor]:
    """Return trial [n] and device [n] of the rows."""
    if group.rows is None:
        return cohort.trial, cohort.device
    return cohort.trial[group.rows], cohort.device[group.rows]


def repeats(group: Group) -> bool:
    """Return whether a device has several rows in a group."""
    rows = group.rows
    return rows is not None and len(torch.unique(rows)) < len(rows)


def require_once(group: Group, codec: str) -> None:
    """Raise UserError where a device has several rows in a group: the mean that it sends of them is
    none of the coded values."""
    if repeats(group):
        raise UserError(
            f"codec.name: '{codec}' codes one row a device, and the algorithm sends several rows "
            "of a device in one group, of which the mean would go on air; use codec identity"
        )
