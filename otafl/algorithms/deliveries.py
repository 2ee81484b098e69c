"""Delivered parts of a round's updates, row by row and trial by trial.

Lost rows have no effect, as if the device had not sent them. Tables [S, K, *shape] hold what the
server knows of each device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.core import contracts as c


def get_delivered(received: c.Received, group: int) -> tuple[c.Tensors, Tensor | None]:
    """Return the updates of the rows of a payload group, and which of them were delivered.

    Parameters
    ----------
    received : Received
        Aggregates of a transport that separates devices.
    group : int
        Index of the payload group.

    Returns
    -------
    dict of str to Tensor [n, *shape]
        Update of each row.
    Tensor, bool [n], or None
        Delivered rows; None if all are.
    """
    assert received.per_device is not None
    masks = received.delivered_mask
    return received.per_device[group], None if masks is None else masks[group]


def replace_delivered(old: c.Tensors, received: c.Received, group: int) -> c.Tensors:
    """Return the mean of a payload group, with old values for coordinates that were not delivered.

    Parameters
    ----------
    old : dict of str to Tensor [S, *shape]
        Current values at the server.
    received : Received
        Aggregates.
    group : int
        Index of the payload group.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        New values.
    """
    return {
        name: block.where(received.delivered_weight(group, name) > 0, old[name])
        for name, block in received.mean[group].items()
    }


def get_delivered_indicator(received: c.Received, cohort: c.Cohort) -> Tensor:
    """Return which rows were delivered, as numbers.

    Parameters
    ----------
    received : Received
        Aggregates.
    cohort : Cohort
        Rows that transmit, N.

    Returns
    -------
    Tensor [N]
        1 for a delivered row, and 0 for one that the receiver knows to be lost.
    """
    if received.delivered_mask is None or received.delivered_mask[0] is None:
        return torch.ones_like(cohort.weight)
    return received.delivered_mask[0].to(cohort.weight.dtype)


def sum_per_trial(values: Tensor, cohort: c.Cohort, rows: Tensor | None = None) -> Tensor:
    """Sum values of rows over each trial.

    Parameters
    ----------
    values : Tensor [N] or [n]
        A value for each row of the cohort, or for selected rows.
    cohort : Cohort
        All rows.
    rows : Tensor, int64 [n], optional
        Selected rows.

    Returns
    -------
    Tensor [S]
        The sums.
    """
    trial = cohort.trial if rows is None else cohort.trial[rows]
    return values.new_zeros(cohort.num_trials).index_add_(0, trial, values)


def sum_rows(values: Tensor, weight: Tensor, cohort: c.Cohort) -> Tensor:
    """Sum weighted values [n, *shape] of the rows over each trial, [S, *shape]."""
    total = values.new_zeros(cohort.num_trials, *values.shape[1:])
    return total.index_add_(0, cohort.trial, values * c.unsqueeze_like(weight, values))


def compute_delivered_shares(
    weight: Tensor, received: c.Received, groups: Sequence[int], cohort: c.Cohort
) -> Tensor:
    """Compute the shares of the rows of which all groups are delivered, with sum one a trial.

    Parameters
    ----------
    weight : Tensor [n]
        Weight of each row.
    received : Received
        Aggregates of a transport that separates devices.
    groups : sequence of int
        Indices of payload groups.
    cohort : Cohort
        Rows that transmit.

    Returns
    -------
    Tensor [n]
        Shares, 0 for all rows of a trial without a delivered row.
    """
    for group in groups:
        delivered = get_delivered(received, group)[1]
        if delivered is not None:
            weight = weight * delivered
    return weight / sum_per_trial(weight, cohort).clamp_min(1e-30)[cohort.trial]


def update_table(
    table: Tensor, rows: Tensor, delivered_mask: Tensor | None, cohort: c.Cohort
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
        rows = torch.where(c.unsqueeze_like(delivered_mask, rows), rows, flat[cohort.flat_index])
    return flat.index_copy(0, cohort.flat_index, rows).view_as(table)


def scatter_to_table(rows: Tensor, delivered_mask: Tensor | None, cohort: c.Cohort) -> Tensor:
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
        rows = torch.where(c.unsqueeze_like(delivered_mask, rows), rows, 0.0)
    return table.index_copy_(0, cohort.flat_index, rows).unflatten(0, (cohort.num_trials, -1))


def find_delivered(delivered_mask: Tensor | None, cohort: c.Cohort) -> Tensor:
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
