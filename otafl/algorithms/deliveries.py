"""Delivered parts of a round's updates, row by row and trial by trial.

Lost rows have no effect, as if the device had not sent them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Received, Tensors


def get_delivered(received: Received, group: int) -> tuple[Tensors, Tensor | None]:
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
    return received.per_device[
        group
    ], None if received.delivered_mask is None else received.delivered_mask[group]


def replace_delivered(old: Tensors, received: Received, group: int) -> Tensors:
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


def get_delivered_indicator(received: Received, cohort: Cohort) -> Tensor:
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


def sum_per_trial(values: Tensor, cohort: Cohort, rows: Tensor | None = None) -> Tensor:
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
