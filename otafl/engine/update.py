"""Updates: payloads of a stack's chunks, their coding, and their acknowledgement.

An update that missed its slot waits for the one at which it is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core.contracts import (
    MODEL,
    Cohort,
    Context,
    DeliveredMasks,
    Group,
    LinkReport,
    Payload,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.engine.assembly import EngineParts
from otafl.engine.device_store import DeviceStore


def encode(
    codec: Codec, payload: Payload, memory: DeviceStore, cohort: Cohort, t: int, streams: Streams
) -> Payload:
    """Return the encoded payload of a cohort; coordinates outside its masks cost no bits.

    memory: codec memory of the devices, empty before the first call; stored by the caller.
    """
    payload = tuple(group.add_known_fraction() for group in payload)
    starts = codec.init(payload).items()
    memory.add({name: row.new_zeros(cohort.num_trials, 1, *row.shape[1:]) for name, row in starts})
    payload, rows = codec.encode(payload, memory.get_rows(cohort), cohort, t, streams)
    memory.put(cohort, {name: row.detach() for name, row in rows.items()})
    return payload


def select_transmitted(payload: Payload, chunk: Cohort) -> Payload:
    """Return the transmitting rows of a chunk's payload, numbered among themselves."""
    renumber = chunk.transmit_mask.cumsum(0) - 1
    out = []
    for group in payload:
        whole = group.row_index is None
        some = group.select(chunk.transmit_mask, renumber)
        out.append(replace(some, row_index=None) if whole else some)
    return tuple(out)


def _is_plain(group: Group) -> bool:
    """Return whether a group has only tensors of every row, and nothing else for each row."""
    by_row = group.row_index, group.mask, group.known_fraction, group.power_factor
    return all(one is None for one in by_row)


def reorder_group(group: Group, new_index: Tensor) -> Group:
    """Return the group of a cohort whose rows move to other places [N]; its rows stay in order."""
    assert group.row_index is not None
    rows = new_index[group.row_index]
    order = torch.argsort(rows, stable=True)
    return replace(group, row_index=rows).map_tensors(lambda block: block[order])


def reorder_payload(payload: Payload, new_index: Tensor) -> Payload:
    """Return the payload of a cohort whose rows move to other places [N]."""
    every_row, out = torch.arange(len(new_index), device=new_index.device), []
    for group in payload:
        if group.row_index is None:
            every = reorder_group(replace(group, row_index=every_row), new_index)
            out.append(replace(every, row_index=None))
        else:
            out.append(reorder_group(group, new_index))
    return tuple(out)


class PayloadCollector:
    """Join of the payloads of the chunks of a cohort of N rows.

    Groups with every row of a chunk are written directly to their place, in `buffers` that the
    caller keeps from round to round. New memory of this size costs more than filling it. So a
    payload is valid only in its own round.
    """

    def __init__(self, size: int, buffers: dict[tuple[int, str], Tensor]) -> None:
        self._size = size
        self._buffers = buffers
        self._filled = 0
        self._reserved: Tensor | None = None
        self._parts: list[tuple[int, Payload]] = []
        self._whole: dict[int, Tensors] = {}

    def reserve(self, like: Tensor) -> Tensor:
        """Return the place [n, P] of a model's increments of the next rows, like [n, P]."""
        self._reserved = self._get_buffer(0, MODEL, like)[self._filled : self._filled + len(like)]
        return self._reserved

    def add(self, count: int, payload: Payload) -> None:
        """Add the payload of the next `count` rows."""
        start = self._filled
        self._filled += count
        self._parts.append((count, payload))
        if count == self._size:
            return
        for index, group in enumerate(payload):
            if not _is_plain(group):
                continue
            whole = self._whole.setdefault(
                index, {name: self._get_buffer(index, name, b) for name, b in group.tensors.items()}
            )
            for name, block in group.tensors.items():
                if block is not self._reserved:
                    whole[name][start : start + count] = block

    def _get_buffer(self, index: int, name: str, block: Tensor) -> Tensor:
        """Return room [N, *shape] for the rows of a block [n, *shape]."""
        kept = self._buffers.get((index, name))
        shape = (self._size, *block.shape[1:])
        if kept is None or kept.shape != shape or kept.dtype != block.dtype:
            kept = self._buffers[index, name] = block.new_empty(shape)
        return kept

    @property
    def payload(self) -> Payload:
        """The payload of all rows. Chunks must agree in their groups."""
        for count, payload in self._parts:
            if count == self._size:  # the other chunks have no transmitting row
                return payload
        first = self._parts[0][1]
        counts, out = [count for count, _ in self._parts], []
        for index, group in enumerate(first):
            if index in self._whole:
                out.append(replace(group, tensors=self._whole[index]))
                continue
            joined = Group.join([payload[index] for _, payload in self._parts], counts)
            out.append(replace(joined, row_index=None) if group.row_index is None else joined)
        return tuple(out)


@dataclass(frozen=True)
class Update:
    """A cohort and its payload.

    original: the method's payload, if it is needed later and faults or the codec have changed it;
    otherwise ().
    """

    cohort: Cohort
    payload: Payload
    original: Payload = ()

    @property
    def original_payload(self) -> Payload:
        """The payload that the method made."""
        return self.original or self.payload

    def replace_payload(self, payload: Payload) -> Update:
        """Return the update with this payload to transmit, and the same method's payload."""
        same = all(new is old for new, old in zip(payload, self.original_payload, strict=True))
        return Update(self.cohort, payload, () if same else self.original_payload)

    def state_dict(self) -> dict[str, Any]:
        """Return cohort and payloads as plain data, see `otafl.core.stateful`."""
        return {
            "cohort": _to_dict(self.cohort),
            "payload": [_to_dict(one) for one in self.payload],
            "made": [_to_dict(one) for one in self.original],
        }

    @staticmethod
    def from_state_dict(state: Mapping[str, Any]) -> Update:
        """Return the update that `state_dict` has converted."""
        payload, made = (tuple(Group(**one) for one in state[name]) for name in ("payload", "made"))
        return Update(Cohort(**state["cohort"]), payload, made)

    def split(self, keep: Tensor) -> tuple[Update, Update]:
        """Return the rows [N] bool that are kept, and the others."""
        return self.take(keep), self.take(~keep)

    def make_empty(self) -> Update:
        """Return an update without rows, with the same groups and shapes."""
        return self.take(torch.zeros_like(self.cohort.transmit_mask))

    def take(self, keep: Tensor) -> Update:
        """Return the rows [N] bool that are kept."""
        renumber = keep.cumsum(0) - 1
        payload, made = (
            tuple(group.select(keep, renumber) for group in groups)
            for groups in (self.payload, self.original)
        )
        return Update(self.cohort.take(keep.nonzero().squeeze(1)), payload, made)

    def join(self, update: Update) -> Update:
        """Return both together, with rows in the order of trial and device."""
        cohort, order = Cohort.join(self.cohort, update.cohort)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        sizes = self.cohort.num_rows, update.cohort.num_rows
        own = (
            (self.original_payload, update.original_payload)
            if self.original or update.original
            else ((), ())
        )
        payload, made = (
            tuple(
                reorder_group(Group.join([a, b], sizes), place) for a, b in zip(*both, strict=True)
            )
            for both in ((self.payload, update.payload), own)
        )
        return Update(cohort, payload, made)


def _to_dict(one: Cohort | Group) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in fields(one)}


def acknowledge_updates(
    parts: EngineParts,
    devices: DeviceStore,
    memory: DeviceStore,
    update: Update,
    report: LinkReport | None,
    t: int,
) -> None:
    """Acknowledge an update at its devices' codecs and methods.

    Parameters
    ----------
    parts : EngineParts
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
        fits = rows.shape[1] in (1, own.num_coordinates)
        if codec.has_memory and own.route == "uplink":
            out.append(torch.ones_like(rows[:, :1]))
        elif fits and sent.tensors.keys() == own.tensors.keys():
            out.append(rows)
        else:
            out.append(rows.all(1, keepdim=True))
    return tuple(out)
