"""Updates in packets of their own: one row of a device, which is delivered or lost as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.base import has_repeated_devices
from otafl.core.contracts import Cohort, Group, Tensors, unsqueeze_like
from otafl.core.errors import UserError
from otafl.models.base import flatten
from otafl.uplink.delivery import Delivery
from otafl.uplink.groups import compute_error_free, make_signal, select_rows
from otafl.uplink.signal import Signal, compute_squared_norm


def rows_once(group: Group, cohort: Cohort, setting: str) -> Tensor:
    """Return the rows [n] of the cohort in a group. Raises UserError if one occurs twice."""
    if has_repeated_devices(group):
        raise UserError(
            f"transport.{setting} needs one row per device, and the algorithm sends several rows "
            "of a device in one group; use the defaults of transport: digital"
        )
    if group.row_index is None:
        return torch.arange(cohort.num_rows, device=cohort.flat_index.device)
    return group.row_index


def hand_over(delivery: Delivery, read: Mapping[int, Group], arrived: Tensor | None) -> None:
    """Pass the server the mean over the delivered updates, and add up the error.

    Parameters
    ----------
    delivery : Delivery
        The payload.
    read : mapping of int to Group
        Groups that are not received as they were sent, by index.
    arrived : Tensor, bool [S, K], or None
        Devices whose update is delivered; None if it is known on the host that all are, as sent.
    """
    cohort = receiving = delivery.cohort
    if arrived is not None:
        sends = cohort.transmit_mask & arrived.flatten()[cohort.flat_index]
        receiving = replace(cohort, transmit_mask=sends, all_transmit=False)
    for sent in delivery.uplink:
        if arrived is None:
            delivery.give_exact(sent)
            delivery.note_delivered(sent)
            continue
        delivered = read.get(sent.index, sent.group)
        got = make_signal(delivered, receiving)
        mean, count = compute_error_free(got)
        if sent.out_of_one:
            count = _normalise_weight(count, sent, arrived)
        rows, each = _find_delivered_rows(delivered, cohort, receiving)
        delivery.give(sent, mean, count, each, rows, delivered_fn=got.delivered_mask)
        delivery.note_delivered(got)
        target = flatten(compute_error_free(sent)[0])
        delivery.tally.error(
            compute_squared_norm(flatten(mean) - target), compute_squared_norm(target)
        )


def _find_delivered_rows(group: Group, cohort: Cohort, receiving: Cohort) -> tuple[Tensor, Tensors]:
    """Return the delivered rows of a group, [n] bool, and all rows, 0 if lost."""
    rows = slice(None) if group.row_index is None else group.row_index
    delivered = receiving.transmit_mask[rows][cohort.transmit_mask[rows]]
    each = select_rows(group, cohort)
    return delivered, {
        name: block.where(unsqueeze_like(delivered, block), 0.0) for name, block in each.items()
    }


def _normalise_weight(count: Tensor | Tensors, sent: Signal, arrived: Tensor) -> Tensor | Tensors:
    """Return the delivered weight out of that of all transmitters.

    `count` is the same out of the delivered weight.
    """
    share = (sent.grid(sent.weight) * arrived).sum(1)
    if isinstance(count, dict):
        return {name: c * unsqueeze_like(share, c) for name, c in count.items()}
    return share
