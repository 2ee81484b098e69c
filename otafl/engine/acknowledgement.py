"""Acknowledgement of updates at the devices' codecs and methods."""

from __future__ import annotations

import torch

from otafl.codecs.base import Codec
from otafl.core.contracts import Cohort, Context, DeliveredMasks, LinkReport, Payload
from otafl.engine.assembly import Parts
from otafl.engine.device_store import DeviceStore
from otafl.engine.update import Update


def acknowledge_updates(
    parts: Parts,
    devices: DeviceStore,
    memory: DeviceStore,
    update: Update,
    report: LinkReport | None,
    t: int,
) -> None:
    """Acknowledge an update at its devices' codecs and methods.

    Parameters
    ----------
    parts : Parts
        Parts of the stack.
    devices, memory : DeviceStore
        State of all devices and of their codecs, written to.
    update : Update
        The update.
    report : LinkReport, optional
        Report of the update's slot; None for updates that never reach one.
    t : int
        Round of the slot, or in which the loss is known.
    """
    cohort, codec, algorithm = update.cohort, parts.link.codec, parts.algorithm
    if not cohort.num_rows or not (algorithm.acknowledged_state or codec.has_memory):
        return
    masks_by_group = get_delivered_masks(report, update.payload, cohort)
    if codec.has_memory:
        own = Context(cohort, codec.hyper, parts.streams, t)
        acknowledge_memory(codec, update.payload, memory, masks_by_group, own)
    if algorithm.acknowledged_state:
        masks_by_group = convert_delivered_masks(codec, update, masks_by_group)
        context = parts.make_context(cohort, t)
        devices.put(
            cohort,
            algorithm.on_ack(
                devices.get_rows(cohort), update.original_payload, masks_by_group, context
            ),
        )


def get_delivered_masks(
    report: LinkReport | None, payload: Payload, cohort: Cohort
) -> DeliveredMasks:
    """Return the delivered coordinates of the payload of a slot's transmitters.

    Without a report, for devices in no slot, none is delivered.
    """
    if report is None:
        return (torch.zeros_like(cohort.transmit_mask)[:, None],) * len(payload)
    rows = [of_group().flatten(0, 1)[cohort.flat_index] for of_group in report.delivered_mask_fns]
    return tuple(one[:, None] if one.dim() == 1 else one for one in rows)


def acknowledge_memory(
    codec: Codec,
    payload: Payload,
    memory: DeviceStore,
    delivered_masks: DeliveredMasks,
    context: Context,
) -> None:
    """Update the codec memory of the transmitters.

    Parameters
    ----------
    codec : Codec
        The codec.
    payload : Payload
        Encoded payload.
    memory : DeviceStore
        Memory of all devices' codecs, written to.
    delivered_masks : DeliveredMasks
        Delivered coordinates of the payload.
    context : Context
        Context of the transmitters.
    """
    rows = codec.on_ack(memory.get_rows(context.cohort), payload, delivered_masks, context)
    memory.put(context.cohort, {name: kept.detach() for name, kept in rows.items()})


def convert_delivered_masks(
    codec: Codec, update: Update, delivered_masks: DeliveredMasks
) -> DeliveredMasks:
    """Return the coordinates of a method's own payload that count as delivered.

    delivered_masks: the delivered coordinates of the transmitted payload. A coordinate in the
    codec's memory is transmitted later, so it counts. If a codec has mixed the coordinates of a
    row, the row counts only if all of them were delivered.
    """
    out = []
    for sent, own, rows in zip(
        update.payload, update.original_payload, delivered_masks, strict=True
    ):
        if codec.has_memory and own.route == "uplink":
            out.append(torch.ones_like(rows[:, :1]))
        elif sent.tensors.keys() == own.tensors.keys() and rows.shape[1] in (
            1,
            own.num_coordinates,
        ):
            out.append(rows)
        else:
            out.append(rows.all(1, keepdim=True))
    return tuple(out)
