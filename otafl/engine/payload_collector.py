"""Payloads of a stack's chunks, joined and encoded with each device's codec memory."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core.contracts import MODEL, Cohort, Group, Payload, Tensors
from otafl.core.rng import Streams
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
        return tuple(
            replace(group, tensors=self._whole[index])
            if index in self._whole
            else self._join_groups(index)
            for index, group in enumerate(first)
        )

    def _join_groups(self, index: int) -> Group:
        groups = [payload[index] for _, payload in self._parts]
        joined = Group.join(groups, [count for count, _ in self._parts])
        return replace(joined, row_index=None) if groups[0].row_index is None else joined
