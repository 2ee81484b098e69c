"""Say what arrived at the server in a round, row by row and trial by trial.

Rows that were lost on the way are as if they had not been sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Received, Tensors


def get_delivered(received: Received, group: int) -> tuple[Tensors, Tensor | None]:
    """Return each row's blocks [n, *shape] of a payload group, and which of them came, [n] bool;
    None if all."""
    assert received.per_device is not None
    return received.per_device[
        group
    ], None if received.delivered_mask is None else received.delivered_mask[group]


def replace_delivered(old: Tensors, received: Received, group: int) -> Tensors:
    """Return the mean of a payload group [S, *shape], with the old blocks' reals where nobody was
    heard."""
    return {
        name: block.where(received.delivered_weight(group, name) > 0, old[name])
        for name, block in received.mean[group].items()
    }


def get_delivered_indicator(received: Received, cohort: Cohort) -> Tensor:
    """Return 1 for a row that arrived and 0 for one that the receiver knows to be lost, [N]."""
    if received.delivered_mask is None or received.delivered_mask[0] is None:
        return torch.ones_like(cohort.weight)
    return received.delivered_mask[0].to(cohort.weight.dtype)


def sum_per_trial(values: Tensor, cohort: Cohort, rows: Tensor | None = None) -> Tensor:
    """Sum values [N] of the cohort's rows, or [n] of some rows, over each trial, [S]."""
    trial = cohort.trial if rows is None else cohort.trial[rows]
    return values.new_zeros(cohort.num_trials).index_add_(0, trial, values)
