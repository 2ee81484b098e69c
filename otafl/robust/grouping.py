"""Groups of devices, each with slots of its own: the payload and the report of a round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, LinkReport, Payload, Received
from otafl.core.rng import Streams, declare_purpose

GROUPS = declare_purpose("robust_groups", __name__)


def draw_groups(cohort: Cohort, num_groups: int, round: int, streams: Streams) -> Tensor:
    """Draw the group of each device of a cohort at random.

    The sizes of the groups of a trial differ by one at most.

    Parameters
    ----------
    cohort : Cohort
        The N transmitters of a round.
    num_groups : int
        Number G of groups.
    round : int
        Number of the round.
    streams : Streams
        Random streams.

    Returns
    -------
    Tensor, int64 [N]
        Group of each row, from 0 to G - 1.
    """
    key = streams.draw_device_uniform(GROUPS, round, cohort.trial, cohort.device, ())
    order = torch.argsort(cohort.trial.double() + key.double())
    before = cohort.rows_per_trial.long().cumsum(0) - cohort.rows_per_trial.long()
    place = torch.arange(len(order), device=order.device) - before[cohort.trial[order]]
    return torch.empty_like(order).scatter_(0, order, place % num_groups)


def split_payload(payload: Payload, group_index: Tensor, num_groups: int) -> Payload:
    """Split a payload into those of the groups, one after the other.

    Parameters
    ----------
    payload : Payload
        The L payload groups of N rows.
    group_index : Tensor, int64 [N]
        Group of each row.
    num_groups : int
        Number G of groups.

    Returns
    -------
    Payload
        G L payload groups: first all of group 0, last all of group G - 1.
    """
    every = torch.arange(len(group_index), device=group_index.device)
    masks = [group_index == number for number in range(num_groups)]
    return tuple(group.select(mask, every) for mask in masks for group in payload)


def select_received(received: Received, group: int, num_parts: int) -> Received:
    """Select what the server received of one group of devices.

    Parameters
    ----------
    received : Received
        What it received of all G groups.
    group : int
        Number of the group.
    num_parts : int
        Number L of payload groups of a device.

    Returns
    -------
    Received
        The L payload groups of the group, without single updates.
    """
    own, weights = slice(group * num_parts, (group + 1) * num_parts), received.coordinate_weight
    return replace(
        received,
        mean=received.mean[own],
        group_weight=received.group_weight[own],
        coordinate_weight=None if weights is None else weights[own],
        per_device=None,
        delivered_mask=None,
    )


def join_report(report: LinkReport, num_parts: int) -> LinkReport:
    """Return the report of a slot with the L payload groups that devices have sent.

    Each device is in one group, so what was delivered of it is what its group's report says.
    """
    functions = report.delivered_mask_fns
    joined = tuple(
        functools.partial(_join_masks, functions[part::num_parts]) for part in range(num_parts)
    )
    return replace(report, delivered_mask_fns=joined)


def _join_masks(functions: Sequence[Callable[[], Tensor]]) -> Tensor:
    """Return which coordinates one of the functions marks, bool [S, K] or [S, K, P]."""
    masks = [function() for function in functions]
    most = max(mask.dim() for mask in masks)
    joined = masks[0] if masks[0].dim() == most else masks[0][..., None]
    for mask in masks[1:]:
        joined = joined | (mask if mask.dim() == most else mask[..., None])
    return joined
