"""Tell the devices' codecs and methods what the server has received of their updates."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core.contracts import Blocks, Cohort, Context, Heard, LinkReport, Payload


def heard(report: LinkReport | None, payload: Payload, cohort: Cohort) -> Heard:
    """Return what the server has received of the payload of a slot's senders; nothing without a
    report, of those who were in no slot."""
    if report is None:
        return (torch.zeros_like(cohort.sends)[:, None],) * len(payload)
    rows = [of_group().flatten(0, 1)[cohort.cell] for of_group in report.heard]
    return tuple(one[:, None] if one.dim() == 1 else one for one in rows)


def settle_memory(
    codec: Codec, payload: Payload, memory: Blocks, heard: Heard, context: Context
) -> None:
    """Settle the memory of the senders.

    Parameters
    ----------
    payload : what they sent, as it was encoded.
    memory : name -> [S * K, ...] of all devices, written to.
    """
    cell = context.cohort.cell
    rows = {name: table[cell] for name, table in memory.items()}
    for name, kept in codec.settle(rows, payload, heard, context).items():
        memory[name][cell] = kept.detach()


def counted(codec: Codec, sent: Payload, made: Payload, heard: Heard) -> Heard:
    """Return what of a method's own payload counts as received.

    What a codec remembers is sent later, so it counts. Where a codec has mixed the reals of a row,
    nothing of the row does unless all came.

    Parameters
    ----------
    sent, made : the payload as it was encoded, and as the method gave it.
    heard : what was received of it as it was encoded.
    """
    out: list[Tensor] = []
    for coded, group, came in zip(sent, made, heard, strict=True):
        if codec.remembers and group.route == "uplink":
            out.append(torch.ones_like(came[:, :1]))
        elif came.shape[1] in (1, group.reals) and coded.blocks.keys() == group.blocks.keys():
            out.append(came)
        else:
            out.append(came.all(1, keepdim=True))
    return tuple(out)
