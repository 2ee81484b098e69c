"""Handle updates that travel as packets of their own: a row a device, which arrives or is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.rows import repeats
from otafl.core.contracts import Blocks, Cohort, Group, Payload, Received
from otafl.core.errors import UserError
from otafl.models.base import flatten
from otafl.transport.report import Gathered, Tally
from otafl.transport.superpose import Signal, each_row, error_free, signal, squared_norm


def rows_once(group: Group, cohort: Cohort, setting: str) -> Tensor:
    """Return the rows [n] of the cohort that a group has. Raises UserError where one occurs
    twice."""
    if repeats(group):
        raise UserError(
            f"transport.{setting} codes one row a device, and the algorithm sends several rows "
            "of a device in one group; use the defaults of transport digital"
        )
    if group.rows is None:
        return torch.arange(cohort.size, device=cohort.cell.device)
    return group.rows


def gathered(
    payload: Payload,
    received: Sequence[Group],
    signals: Sequence[Signal],
    cohort: Cohort,
    arrived: Tensor | None,
    tally: Tally,
) -> Received:
    """Average over the updates that arrived, and add up the error.

    Parameters
    ----------
    payload : what was sent.
    received : the same groups as the server reads them.
    signals : of the payload.
    cohort : the N rows that sent.
    arrived : [S, K] bool, whose update arrived; None: the host knows that all did, as sent.
    tally : of the delivery.
    """
    out, heard = Gathered(), cohort
    if arrived is not None:
        sends = cohort.sends & arrived.flatten()[cohort.cell]
        heard = replace(cohort, sends=sends, all_send=False)
    each: list[Blocks] = []
    came_rows: list[Tensor | None] = []
    for group, came, sent in zip(payload, received, signals, strict=True):
        if group.route == "ideal" or arrived is None:
            out.add(*error_free(sent))
            each.append(each_row(group, cohort))
            came_rows.append(None)
            if group.route == "uplink":
                out.arrived(sent)
            continue
        got = signal(came, heard)
        mean, count = error_free(got)
        out.add(mean, _out_of_one(count, sent, arrived) if sent.linear else count)
        out.arrived(got)
        rows, own = _heard_rows(came, cohort, heard)
        each.append(own)
        came_rows.append(rows)
        target = flatten(error_free(sent)[0])
        tally.error(squared_norm(flatten(mean) - target), squared_norm(target))
    return out.received(tuple(each), tuple(came_rows))


def _heard_rows(group: Group, cohort: Cohort, heard: Cohort) -> tuple[Tensor, Blocks]:
    """Return which of the sending rows of a group arrived [n] bool, and all of them, 0 where
    lost."""
    rows = slice(None) if group.rows is None else group.rows
    came = heard.sends[rows][cohort.sends[rows]]
    own = each_row(group, cohort)
    column = {name: came.view(-1, *[1] * (block.dim() - 1)) for name, block in own.items()}
    return came, {name: block.where(column[name], 0.0) for name, block in own.items()}


def _out_of_one(count: Tensor | Blocks, sent: Signal, arrived: Tensor) -> Tensor | Blocks:
    """Return the weight that arrived, out of that of all senders, where `count` is out of what
    arrived."""
    share = (sent.grid(sent.weight) * arrived).sum(1)
    if isinstance(count, dict):
        return {name: c * share.view(-1, *[1] * (c.dim() - 1)) for name, c in count.items()}
    return share
