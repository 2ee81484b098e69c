"""Tables [S, K, *shape] of what the server knows of each device.

Lost rows have no effect, as if the device had not sent them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.parameters import make_flat_view
from otafl.core.contracts import Cohort, View, unsqueeze_like
from otafl.models.base import Model


def update_table(
    table: Tensor, rows: Tensor, delivered_mask: Tensor | None, cohort: Cohort
) -> Tensor:
    """Return a table in which delivered rows replace the old entries.

    Parameters
    ----------
    table : Tensor [S, K, *shape]
        Old entries.
    rows : Tensor [n, *shape]
        New entries of the cohort.
    delivered_mask : Tensor, bool [n], optional
        Delivered rows; all if None.
    cohort : Cohort
        Devices of the rows.

    Returns
    -------
    Tensor [S, K, *shape]
        New table.
    """
    flat = table.flatten(0, 1)
    if delivered_mask is not None:
        rows = torch.where(unsqueeze_like(delivered_mask, rows), rows, flat[cohort.flat_index])
    return flat.index_copy(0, cohort.flat_index, rows).view_as(table)


def scatter_to_table(rows: Tensor, delivered_mask: Tensor | None, cohort: Cohort) -> Tensor:
    """Scatter delivered rows into a table.

    Parameters
    ----------
    rows : Tensor [n, *shape]
        Entries of the cohort.
    delivered_mask : Tensor, bool [n], optional
        Delivered rows; all if None.
    cohort : Cohort
        Devices of the rows.

    Returns
    -------
    Tensor [S, K, *shape]
        Table with 0 for all other devices.
    """
    cells = cohort.num_trials * cohort.num_devices
    table = rows.new_zeros(cells, *rows.shape[1:])
    if delivered_mask is not None:
        rows = torch.where(unsqueeze_like(delivered_mask, rows), rows, 0.0)
    return table.index_copy_(0, cohort.flat_index, rows).unflatten(0, (cohort.num_trials, -1))


def find_delivered(delivered_mask: Tensor | None, cohort: Cohort) -> Tensor:
    """Find the devices with a delivered update.

    Parameters
    ----------
    delivered_mask : Tensor, bool [n], optional
        Delivered rows; all if None.
    cohort : Cohort
        Devices of the rows.

    Returns
    -------
    Tensor [S, K]
        1 for these devices and 0 for the others.
    """
    return scatter_to_table(torch.ones_like(cohort.weight), delivered_mask, cohort)


def make_flat_personal_view(model: Model, table: Tensor) -> View:
    """Build the view of the models [S, K, P] of all devices."""
    return make_flat_view(model, table.flatten(0, 1), "device")
