"""Tell the devices' codecs and methods what the server has received of their updates."""

from __future__ import annotations

import torch

from otafl.codecs.base import Codec
from otafl.core.contracts import Cohort, Context, DeliveredMasks, LinkReport, Payload
from otafl.engine.assembly import Parts
from otafl.engine.device_store import DeviceStore
from otafl.engine.pending import Update


def settle(
    parts: Parts,
    devices: DeviceStore,
    memory: DeviceStore,
    update: Update,
    report: LinkReport | None,
    t: int,
) -> None:
    """Settle what codec and method keep at the devices of an update.

    Parameters
    ----------
    devices, memory : of all devices, written to.
    report : of the update's slot; None of updates that will never be in one.
    t : round of the slot, or in which that is known.
    """
    cohort, codec, algorithm = update.cohort, parts.link.codec, parts.algorithm
    if not cohort.size or not (algorithm.has_on_ack or codec.has_memory):
        return
    came = heard(report, update.payload, cohort)
    if codec.has_memory:
        own = Context(cohort, codec.hyper, parts.streams, t)
        acknowledge_memory(codec, update.payload, memory, came, own)
    if algorithm.has_on_ack:
        came = counted(codec, update, came)
        context = parts.context(cohort, t)
        devices.put(cohort, algorithm.on_ack(devices.rows(cohort), update.own, came, context))


def heard(report: LinkReport | None, payload: Payload, cohort: Cohort) -> DeliveredMasks:
    """Return what the server has received of the payload of a slot's senders; nothing without a
    report, of those who were in no slot.
    """
    if report is None:
        return (torch.zeros_like(cohort.sends)[:, None],) * len(payload)
    rows = [of_group().flatten(0, 1)[cohort.cell] for of_group in report.heard]
    return tuple(one[:, None] if one.dim() == 1 else one for one in rows)


def acknowledge_memory(
    codec: Codec, payload: Payload, memory: DeviceStore, came: DeliveredMasks, context: Context
) -> None:
    """Settle the memory of the senders.

    Parameters
    ----------
    payload : what they sent, as it was encoded.
    memory : of all devices' codecs, written to.
    came : what of it the server has received.
    """
    rows = codec.on_ack(memory.rows(context.cohort), payload, came, context)
    memory.put(context.cohort, {name: kept.detach() for name, kept in rows.items()})


def counted(codec: Codec, update: Update, came: DeliveredMasks) -> DeliveredMasks:
    """Return what of a method's own payload counts as received, given what was of the payload as it
    was sent.

    What a codec remembers is sent later, so it counts. Where a codec has mixed the reals of a row,
    nothing of the row does unless all came.
    """
    out = []
    for sent, own, rows in zip(update.payload, update.own, came, strict=True):
        if codec.has_memory and own.route == "uplink":
            out.append(torch.ones_like(rows[:, :1]))
        elif sent.blocks.keys() == own.blocks.keys() and rows.shape[1] in (1, own.reals):
            out.append(rows)
        else:
            out.append(rows.all(1, keepdim=True))
    return tuple(out)
