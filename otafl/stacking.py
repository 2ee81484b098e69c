"""Rows of a stack: the devices' state between rounds, chunks that fit the cache, and putting the
chunks' payloads together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otafl.contracts import Blocks, Broadcast, Cohort, Group, Payload

if TYPE_CHECKING:
    from otafl.assembly import Parts
    from otafl.transport.downlink import Arrival


class DeviceStore:
    """State of all devices of all trials, name -> [S * K, *shape].

    blocks: [S, K, *shape], or [S, 1, *shape] for a start that all devices of a trial share; each
    device gets memory of its own.
    """

    def __init__(self, blocks: Blocks, trials: int, population: int) -> None:
        self._cells = trials * population
        self._trials = trials
        self._table = {
            name: block.expand(trials, population, *block.shape[2:])
            .reshape(self._cells, *block.shape[2:])
            .clone()
            for name, block in blocks.items()
        }

    def rows(self, cohort: Cohort) -> Blocks:
        """State [n, *shape] of the cohort's rows."""
        if cohort.size == self._cells:
            return dict(self._table)
        return {name: table.index_select(0, cohort.cell) for name, table in self._table.items()}

    def put(self, cohort: Cohort, state: Blocks) -> None:
        """Keeps the state [n, *shape] of the cohort's rows."""
        if cohort.size == self._cells:
            self._table = dict(state)
            return
        for name, rows in state.items():
            self._table[name].index_copy_(0, cohort.cell, rows)

    def blocks(self) -> Blocks:
        """[S, K, *shape]."""
        return {
            name: table.view(self._trials, -1, *table.shape[1:])
            for name, table in self._table.items()
        }

    @property
    def reals(self) -> int:
        """Real numbers of one device's state."""
        return sum(table[0].numel() for table in self._table.values())


def rows_at_once(parts: Parts, broadcast: Broadcast | Arrival, devices: DeviceStore) -> int:
    """How many cohort rows to train together: what a row works on (its copy of the model, its
    state, a minibatch) times the rows should fit `engine.chunk_mb`."""
    scenario = parts.scenario
    sample = parts.data.x_train[0].size + parts.model.kept_reals
    batch = scenario.training.batch_size * sample
    reals = 2 * broadcast.reals + 2 * devices.reals + batch
    size = torch.finfo(parts.streams.dtype).bits // 8
    return max(1, int(scenario.engine.chunk_mb * 2**20 / (reals * size)))


class Collector:
    """The payloads and losses of the chunks of a cohort of N rows, put together. Groups that
    have every row of a chunk are written straight to their place, in `buffers` that the caller
    keeps from round to round: fresh memory of this size costs more than filling it. So a payload
    is good for its own round only."""

    def __init__(self, size: int, buffers: dict[tuple[int, str], Tensor]) -> None:
        self._size = size
        self._buffers = buffers
        self._chunks: list[tuple[int, Payload]] = []
        self._losses: list[Tensor] = []
        self._whole: dict[int, Blocks] = {}

    def add(self, start: int, payload: Payload, loss: Tensor) -> None:
        self._losses.append(loss)
        self._chunks.append((start, payload))
        if len(loss) == self._size:
            return
        for index, group in enumerate(payload):
            if group.rows is not None or group.mask is not None:
                continue
            whole = self._whole.setdefault(
                index, {name: self._buffer(index, name, b) for name, b in group.blocks.items()}
            )
            for name, block in group.blocks.items():
                whole[name][start : start + len(loss)] = block

    def _buffer(self, index: int, name: str, block: Tensor) -> Tensor:
        """[N, *shape] for the rows of a block [n, *shape]."""
        kept = self._buffers.get((index, name))
        shape = (self._size, *block.shape[1:])
        if kept is None or kept.shape != shape or kept.dtype != block.dtype:
            kept = self._buffers[index, name] = block.new_empty(shape)
        return kept

    @property
    def loss(self) -> Tensor:
        """[N]."""
        return torch.cat(self._losses)

    @property
    def payload(self) -> Payload:
        """Of all rows. Chunks must agree in their groups."""
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
        groups = [(start, payload[index]) for start, payload in self._chunks]
        first = groups[0][1]
        rows = None
        if first.rows is not None:
            rows = torch.cat([g.rows + start for start, g in groups if g.rows is not None])
        masks = [own for _, g in groups if (own := g.full_mask) is not None]
        mask = (
            {name: torch.cat([own[name] for own in masks]) for name in masks[0]} if masks else None
        )
        blocks = {name: torch.cat([g.blocks[name] for _, g in groups]) for name in first.blocks}
        return replace(first, rows=rows, mask=mask, blocks=blocks)
