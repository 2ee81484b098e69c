"""What a server knows of each device: tables [S, K, *shape], and how what arrived in a round gets
into them. Rows that were lost on the way are as if they had not been sent."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.parameters import column, flat_view
from otafl.core.contracts import Blocks, Cohort, Received, View
from otafl.models.base import Model


def arrived(received: Received, group: int) -> tuple[Blocks, Tensor | None]:
    """Each row's blocks [n, *shape] of a payload group, and which of them came [n], None if all."""
    assert received.each is not None
    return received.each[group], None if received.came is None else received.came[group]


def rewritten(table: Tensor, rows: Tensor, came: Tensor | None, cohort: Cohort) -> Tensor:
    """The table with what came of rows [n, *shape] in the place of the old entries; a new one."""
    flat = table.flatten(0, 1)
    if came is not None:
        rows = torch.where(column(came, rows), rows, flat[cohort.cell])
    return flat.index_copy(0, cohort.cell, rows).view_as(table)


def spread(rows: Tensor, came: Tensor | None, cohort: Cohort) -> Tensor:
    """A table [S, K, *shape] of what came of rows [n, *shape], 0 for all other devices."""
    cells = cohort.trials * cohort.population
    table = rows.new_zeros(cells, *rows.shape[1:])
    if came is not None:
        rows = torch.where(column(came, rows), rows, 0.0)
    return table.index_copy_(0, cohort.cell, rows).unflatten(0, (cohort.trials, -1))


def heard(came: Tensor | None, cohort: Cohort) -> Tensor:
    """[S, K]: 1 for the devices of which something came, else 0."""
    return spread(torch.ones_like(cohort.weight), came, cohort)


def flat_personal_view(model: Model, table: Tensor) -> View:
    """The model of each device [S, K, P], to be evaluated."""
    return flat_view(model, table.flatten(0, 1), "device")
