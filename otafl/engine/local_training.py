"""Local training of a cohort's rows, in chunks that fit the processor's cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Outcome
from otafl.core.contracts import Broadcast, Cohort, LocalContext, LocalData, Payload
from otafl.core.rng import Round
from otafl.downlink.base import BroadcastDelivery
from otafl.engine.assembly import EngineParts
from otafl.engine.device_store import DeviceStore
from otafl.engine.local_graphs import MAX_GRAPHS, LocalGraphs, UpdateInputs, make_recorder
from otafl.engine.update import PayloadCollector, reorder_payload, select_transmitted
from otafl.user_code.custom_part import CustomPart

CHUNK_MB = {"cpu": 8.0, "cuda": 2048.0}
"""Default memory of the rows that are trained together.

It fits the cache of a few cores. A GPU processes as many rows at once as the default of
`engine.memory_gb` has room for.
"""


class LocalTraining:
    """Local work of a stack's devices."""

    def __init__(self, parts: EngineParts, devices: DeviceStore) -> None:
        self._parts, self._devices = parts, devices
        self._rows_at_once: int | None = None
        self._buffers: dict[tuple[int, str], Tensor] = {}
        self._is_built_in = not isinstance(parts.scenario.algorithm, CustomPart)
        scenario, device = parts.scenario, parts.streams.device
        recorder = make_recorder(device) if scenario.engine.cuda_graphs else None
        chosen = scenario.algorithm, scenario.model, scenario.loss
        self.graphs: LocalGraphs | None = None
        if recorder is not None and not any(isinstance(one, CustomPart) for one in chosen):
            self.graphs = LocalGraphs(recorder, self._update, device)

    def train_cohort(
        self, broadcast: Broadcast | BroadcastDelivery, cohort: Cohort, t: int
    ) -> tuple[Payload, Tensor]:
        """Train every row of the cohort.

        Returns the payload of the transmitting rows, in their order, and the loss [N] of all.
        """
        if self._rows_at_once is None:
            # those that fit: a row works on its copies of model and state, and on a minibatch
            parts = self._parts
            sample = parts.samples.data.x_train[0].size + parts.model.saved_activations
            num_coordinates = 2 * broadcast.num_coordinates + 2 * self._devices.num_coordinates
            num_coordinates += parts.samples.training_data.batch_size * sample
            row_bytes = num_coordinates * (torch.finfo(parts.streams.dtype).bits // 8)
            chunk_mb = parts.scenario.engine.chunk_mb
            if chunk_mb is None:
                chunk_mb = CHUNK_MB.get(parts.streams.device.type, CHUNK_MB["cpu"])
            self._rows_at_once = max(1, int(chunk_mb * 2**20 / row_bytes))
        sends = np.ones(cohort.num_rows, dtype=bool)
        if not cohort.all_transmit:
            sends = cohort.transmit_mask.cpu().numpy()
        out, losses = PayloadCollector(int(sends.sum()), self._buffers), list[Tensor]()
        steps = self.count_steps(cohort)
        if steps is None:
            self._train_chunks(broadcast, cohort, sends, t, out, losses)
            return out.payload, torch.cat(losses)
        places, device = [], cohort.trial.device
        for number in np.unique(steps):
            keep = steps == number
            places.append(np.flatnonzero(keep))
            rows = torch.from_numpy(places[-1]).to(device)
            some = broadcast.select_rows(torch.from_numpy(keep).to(device))
            self._train_chunks(some, cohort.take(rows), sends[keep], t, out, losses)
        order, loss = torch.from_numpy(np.concatenate(places)).to(device), torch.cat(losses)
        sent = cohort.transmit_mask.cumsum(0)[order[cohort.transmit_mask[order]]] - 1
        return reorder_payload(out.payload, sent), torch.empty_like(loss).index_copy(0, order, loss)

    def count_steps(self, cohort: Cohort) -> np.ndarray | None:
        """Return the local steps of each row, int64 [N]; None if all rows take as many."""
        data = self._parts.samples.training_data
        steps = None if data.epochs is None else data.count_steps(cohort)
        return None if steps is None or len(np.unique(steps)) < 2 else steps

    def _train_chunks(
        self,
        broadcast: Broadcast | BroadcastDelivery,
        cohort: Cohort,
        sends: np.ndarray,
        t: int,
        out: PayloadCollector,
        losses: list[Tensor],
    ) -> None:
        """Train rows with equal numbers of local steps, in chunks of nearly equal size.

        sends: whether a row transmits, bool [N].
        """
        assert self._rows_at_once is not None
        chunks = max(1, round(cohort.num_rows / self._rows_at_once))
        size = max(1, -(-cohort.num_rows // chunks))
        for start in range(0, cohort.num_rows, size):
            stop = min(start + size, cohort.num_rows)
            inputs = self._get_inputs(broadcast, cohort, start, stop)
            if self.graphs is None or chunks > MAX_GRAPHS:
                in_place = self._is_built_in and cohort.all_transmit and chunks > 1
                reserve_fn = out.reserve if in_place else None
                state, payload, loss = self._update(inputs, t, reserve_fn=reserve_fn)
            else:
                state, payload, loss = self.graphs.run(inputs, t)
            chunk = inputs.chunk
            self._devices.put(chunk, state)
            losses.append(loss)
            sent = payload if cohort.all_transmit else select_transmitted(payload, chunk)
            out.add(int(sends[start:stop].sum()), sent)

    def rehearse(self, broadcast: Broadcast, cohort: Cohort, t: int) -> Payload:
        """Return what rows that take as many steps would send, without keeping their state."""
        _, payload, _ = self._update(self._get_inputs(broadcast, cohort, 0, cohort.num_rows), t)
        return payload

    def _get_inputs(
        self, broadcast: Broadcast | BroadcastDelivery, cohort: Cohort, start: int, stop: int
    ) -> UpdateInputs:
        """Return what the rows start..stop of the cohort receive, and their state."""
        chunk = cohort if stop - start == cohort.num_rows else cohort.slice_rows(start, stop)
        distorts = isinstance(broadcast, BroadcastDelivery) and broadcast.distort is not None
        if distorts:
            sent = broadcast.expand_rows(cohort, start, stop)
        else:
            whole = broadcast.sent if isinstance(broadcast, BroadcastDelivery) else broadcast
            sent = whole.slice_rows(start, stop)
        epochs = self._parts.samples.training_data.epochs
        index = None if epochs is None else chunk.host_flat_index
        return UpdateInputs(sent, distorts, self._devices.get_rows(chunk), chunk, index)

    def _update(
        self,
        inputs: UpdateInputs,
        t: Round,
        reserve_fn: Callable[[Tensor], Tensor] | None = None,
    ) -> Outcome:
        """Return the outcome of the local update of a chunk, in a round of this index."""
        parts, chunk = self._parts, inputs.chunk
        data = parts.samples.training_data
        work: LocalData = data.select_cohort(t, chunk, parts.model.uses_dropout)
        if parts.faults is not None:
            work = parts.faults.change_labels(work, chunk)
        shared = chunk, parts.hyper, parts.streams, t, work
        context = LocalContext(*shared, reserve_fn=reserve_fn)
        shares = self._is_built_in and parts.algorithm.only_reads_broadcast
        is_read_only = inputs.is_own or shares
        get_rows = inputs.sent.view_rows if is_read_only else inputs.sent.expand_rows
        received = get_rows(chunk, 0, chunk.num_rows)
        return parts.algorithm.run_local_update(received, inputs.rows, context)
