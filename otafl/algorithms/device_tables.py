"""Keep what a server knows of each device in tables [S, K, *shape], and renew it by what arrived.

Rows that were lost on the way are as if they had not been sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.parameters import flat_view
from otafl.core.contracts import Cohort, View, column
from otafl.models.base import Model


def rewritten(table: Tensor, rows: Tensor, came: Tensor | None, cohort: Cohort) -> Tensor:
    """Return a new table with what came of rows [n, *shape] in the place of the old entries."""
    flat = table.flatten(0, 1)
    if came is not None:
        rows = torch.where(column(came, rows), rows, flat[cohort.cell])
    return flat.index_copy(0, cohort.cell, rows).view_as(table)


def spread(rows: Tensor, came: Tensor | None, cohort: Cohort) -> Tensor:
    """Return a table [S, K, *shape] of what came of rows [n, *shape], 0 for all other devices."""
    cells = cohort.trials * cohort.num_devices
    table = rows.new_zeros(cells, *rows.shape[1:])
    if came is not None:
        rows = torch.where(column(came, rows), rows, 0.0)
    return table.index_copy_(0, cohort.cell, rows).unflatten(0, (cohort.trials, -1))


def heard(came: Tensor | None, cohort: Cohort) -> Tensor:
    """Return 1 for the devices of which something came and 0 for the others, [S, K]."""
    return spread(torch.ones_like(cohort.weight), came, cohort)


def flat_personal_view(model: Model, table: Tensor) -> View:
    """Show the model of each device [S, K, P], to be evaluated."""
    return flat_view(model, table.flatten(0, 1), "device")
