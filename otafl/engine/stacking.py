"""Keep the rows of a stack.

They are the devices' state between rounds, chunks that fit the cache, putting the chunks' payloads
together, and encoding them with what each device's codec remembers.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core.contracts import Blocks, Cohort, Group, Payload, taken
from otafl.core.lasting import Lasting
from otafl.core.rng import Streams
from otafl.scenario import Scenario
from otafl.scenario.sections import DeviceState


class DeviceStore(Lasting):
    """Keep the state of all devices of all trials, name -> [S * K, *shape].

    blocks: [S, K, *shape], or [S, 1, *shape] for a start that all devices of a trial share; each
    device gets memory of its own. place: "memory" of the torch device; "host", for a GPU that has
    less; or "disk", in temporary files that the system reads and writes as needed.
    """

    def __init__(
        self, blocks: Blocks, trials: int, population: int, place: DeviceState = "memory"
    ) -> None:
        self._cells = trials * population
        self._trials = trials
        self._place = place
        self._files: list[Any] = []
        self._table: Blocks = {}
        for name, block in blocks.items():
            table = self._table[name] = self._new(block, (self._cells, *block.shape[2:]))
            whole = table.view(trials, population, *block.shape[2:])
            for trial, own in enumerate(block):  # in turn, so that no second copy is made
                whole[trial].copy_(own.expand_as(whole[trial]))

    def _new(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        if self._place == "memory":
            return like.new_empty(shape)
        if self._place == "host":
            return torch.empty(shape, dtype=like.dtype)
        file = tempfile.NamedTemporaryFile(prefix="otafl-devices-")  # noqa: SIM115
        self._files.append(file)
        size = math.prod(shape)
        return torch.from_file(file.name, shared=True, size=size, dtype=like.dtype).view(shape)

    def kept(self) -> dict[str, Any]:
        return dict(self._table)

    def restore(self, kept: Mapping[str, Any]) -> None:
        for name, table in self._table.items():
            table.copy_(kept[name])

    def rows(self, cohort: Cohort) -> Blocks:
        """Return the state [n, *shape] of the cohort's rows."""
        if self._replaces(cohort):
            return dict(self._table)
        return {name: taken(table, cohort.cell) for name, table in self._table.items()}

    def put(self, cohort: Cohort, state: Blocks) -> None:
        """Keep the state [n, *shape] of the cohort's rows."""
        if self._replaces(cohort):
            self._table = dict(state)
            return
        for name, rows in state.items():
            table = self._table[name]
            table.index_copy_(0, cohort.cell.to(table.device), rows.to(table.device))

    def _replaces(self, cohort: Cohort) -> bool:
        """Say whether the tables themselves change hands: nothing is copied."""
        return self._place == "memory" and cohort.size == self._cells

    def blocks(self) -> Blocks:
        """Return the state [S, K, *shape] of all."""
        return {
            name: table.view(self._trials, -1, *table.shape[1:])
            for name, table in self._table.items()
        }

    @property
    def reals(self) -> int:
        """Count the real numbers of one device's state."""
        return sum(table[0].numel() for table in self._table.values())


def rows_at_once(scenario: Scenario, copy: int, state: int, sample: int, dtype: torch.dtype) -> int:
    """Say how many cohort rows to train together: what a row works on (its copy of the model, its
    state, a minibatch) times the rows should fit `engine.chunk_mb`.

    copy, state, sample: real numbers that a row receives, keeps, and needs for one sample.
    """
    reals = 2 * copy + 2 * state + scenario.training.batch_size * sample
    size = torch.finfo(dtype).bits // 8
    return max(1, int(scenario.engine.chunk_mb * 2**20 / (reals * size)))


def encode(
    codec: Codec, payload: Payload, memory: Blocks, cohort: Cohort, t: int, streams: Streams
) -> Payload:
    """Return the payload of a cohort as it is sent; what its masks leave out costs no bits.

    memory: name -> [S * K, ...] of all devices, which is made at the first call, and kept by the
    caller.
    """
    payload = tuple(group.with_share() for group in payload)
    cells = cohort.trials * cohort.population
    for name, start in codec.init(payload).items():
        if name not in memory:
            memory[name] = start.new_zeros(cells, *start.shape[1:])
    rows = {name: table[cohort.cell] for name, table in memory.items()}
    payload, rows = codec.encode(payload, rows, cohort, t, streams)
    for name, kept in rows.items():
        memory[name][cohort.cell] = kept.detach()
    return payload


def sending(payload: Payload, chunk: Cohort) -> Payload:
    """Return the rows of a chunk's payload that send, counted among themselves."""
    renumber = chunk.sends.cumsum(0) - 1
    out = []
    for group in payload:
        whole = group.rows is None
        some = group.select(chunk.sends, renumber)
        out.append(replace(some, rows=None) if whole else some)
    return tuple(out)


class Collector:
    """Put the payloads of the chunks of a cohort of N rows together.

    Groups that have every row of a chunk are written straight to their place, in `buffers` that the
    caller keeps from round to round: fresh memory of this size costs more than filling it. So a
    payload is good for its own round only.
    """

    def __init__(self, size: int, buffers: dict[tuple[int, str], Tensor]) -> None:
        self._size = size
        self._buffers = buffers
        self._filled = 0
        self._chunks: list[tuple[int, Payload]] = []
        self._whole: dict[int, Blocks] = {}

    def add(self, count: int, payload: Payload) -> None:
        """Add the payload of the next so many rows."""
        start = self._filled
        self._filled += count
        self._chunks.append((count, payload))
        if count == self._size:
            return
        for index, group in enumerate(payload):
            if group.rows is not None or group.mask is not None:
                continue
            whole = self._whole.setdefault(
                index, {name: self._buffer(index, name, b) for name, b in group.blocks.items()}
            )
            for name, block in group.blocks.items():
                whole[name][start : start + count] = block

    def _buffer(self, index: int, name: str, block: Tensor) -> Tensor:
        """Return room [N, *shape] for the rows of a block [n, *shape]."""
        kept = self._buffers.get((index, name))
        shape = (self._size, *block.shape[1:])
        if kept is None or kept.shape != shape or kept.dtype != block.dtype:
            kept = self._buffers[index, name] = block.new_empty(shape)
        return kept

    @property
    def payload(self) -> Payload:
        """Return the payload of all rows. Chunks must agree in their groups."""
        if len(self._chunks) == 1:
            return self._chunks[0][1]
        first = self._chunks[0][1]
        return tuple(
            replace(group, blocks=self._whole[index])
            if index in self._whole
            else self._joined(index)
            for index, group in enumerate(first)
        )

    def _joined(self, index: int) -> Group:
        groups = [payload[index] for _, payload in self._chunks]
        joined = Group.joined(groups, [count for count, _ in self._chunks])
        return replace(joined, rows=None) if groups[0].rows is None else joined
