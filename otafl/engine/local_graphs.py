"""CUDA graphs of local work, which launch all its operations at once.

A round's local work is hundreds to thousands of small operations. A GPU does many of them in less
time than the host takes to launch one. A CUDA graph is the list of such operations as a GPU has
recorded it, with the addresses of their tensors. The host launches the whole list in one call.

A graph knows neither what the host computed nor what it decided while it was recorded. So what
differs from round to round enters through tensors at fixed addresses, the index of the round among
them. Local work that waits for the GPU, as for a number by which the host decides, and that of
user-defined parts, is not recorded.

References
----------
NVIDIA, CUDA C++ Programming Guide, section "CUDA Graphs".
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Outcome
from otafl.core.contracts import Broadcast, Cohort, Tensors
from otafl.core.rng import Round
from otafl.core.tensors import note_constants

MAX_GRAPHS = 8
"""Most graphs of a stack, which each keep the memory of a chunk's local work."""

MAX_SHAPES = 64
"""Most different chunks that are looked out for; beyond them rounds hardly repeat."""

COHORT_TENSORS = tuple(
    one.name for one in dataclasses.fields(Cohort) if one.type in ("Tensor", Tensor)
)


class NotRecordableError(Exception):
    """Local work waits for the processor that computes, so that no graph can have it."""


class CudaRecorder:
    """CUDA graphs that share their memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def rehearse(self, run: Callable[[], Outcome]) -> Outcome:
        """Return what `run` returns. Raises NotRecordableError if it waits for the GPU."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():  # that the mode is a prototype
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        try:
            return run()
        except RuntimeError as error:  # any other one occurs again in the work that is not recorded
            raise NotRecordableError from error
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def record(self, run: Callable[[], Outcome]) -> tuple[Outcome, Callable[[], None]]:
        """Record `run`; return its outcome, whose tensors each call of the function fills.

        Raises NotRecordableError if memory is short.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outcome = run()
        except torch.OutOfMemoryError as error:
            raise NotRecordableError from error
        return outcome, graph.replay


def make_recorder(device: torch.device) -> CudaRecorder | None:
    """Return the recorder of a processor; None if it has none."""
    return CudaRecorder() if device.type == "cuda" else None


@dataclass(frozen=True)
class UpdateInputs:
    """What differs from round to round in the local update of a chunk of n rows.

    sent: what the rows receive, of their trials or in a row for each. is_own: whether it is memory
    of the chunk alone. rows: state of the devices [n, *shape]. chunk: the rows. host_index: which
    devices they are, `Cohort.host_flat_index`, if the host reads it in the update.
    """

    sent: Broadcast
    is_own: bool
    rows: Tensors
    chunk: Cohort
    host_index: np.ndarray | None = None

    def list_tensors(self) -> list[Tensor]:
        """List all tensors, always in the same order."""
        of_chunk = [getattr(self.chunk, name) for name in COHORT_TENSORS]
        return [*self.sent.tensors.values(), *self.rows.values(), *of_chunk]

    def copy(self) -> UpdateInputs:
        """Copy all tensors."""
        of_chunk: dict[str, Any] = {n: getattr(self.chunk, n).clone() for n in COHORT_TENSORS}
        return replace(
            self,
            sent=Broadcast(_copy(self.sent.tensors), per_device=self.sent.per_device),
            rows=_copy(self.rows),
            chunk=replace(self.chunk, **of_chunk),
        )

    def forget_derived(self) -> UpdateInputs:
        """Return the same inputs, without what the chunk has computed from its tensors."""
        chunk = replace(self.chunk)
        if self.host_index is not None:
            vars(chunk)["host_flat_index"] = self.host_index  # a cached property
        return replace(self, rows=dict(self.rows), chunk=chunk)


Update = Callable[[UpdateInputs, Round], Outcome]
"""Local update of a chunk in a round."""


@dataclass(frozen=True)
class _Graph:
    """Recorded update: its inputs and outcome, its replay, and constants whose memory it reads."""

    inputs: UpdateInputs
    outcome: Outcome
    replay: Callable[[], None]
    constants: list[Tensor]


class LocalGraphs:
    """Graphs of the local updates of a stack, one for each shape.

    The first update of a shape runs as it is, and fills the caches of what it calls. The second is
    recorded, if it waits for nothing.

    Parameters
    ----------
    recorder : CudaRecorder
        Means to record operations.
    update : Update
        The local update. It draws the same numbers for the index of a round on the host and on the
        processor.
    device : torch.device
        Processor that computes.
    """

    def __init__(self, recorder: CudaRecorder, update: Update, device: torch.device) -> None:
        self._recorder, self._update = recorder, update
        self._round = torch.zeros((), dtype=torch.int64, device=device)
        self._seen: set[Hashable] = set()
        self._refused: set[Hashable] = set()
        self._graphs: dict[Hashable, _Graph] = {}
        self.num_replays = 0

    def run(self, inputs: UpdateInputs, t: int) -> Outcome:
        """Return the outcome of a round's local update of a chunk."""
        # all but the numbers in the tensors
        sent, chunk, index = inputs.sent, inputs.chunk, inputs.host_index
        tensors = tuple((one.shape, one.stride(), one.dtype) for one in inputs.list_tensors())
        names = tuple(sent.tensors), tuple(inputs.rows)
        host = chunk.counts, chunk.num_devices, chunk.all_transmit, sent.per_device, inputs.is_own
        shape = (*host, names, tensors, None if index is None else index.tobytes())
        graph = self._graphs.get(shape)
        if graph is not None:
            self._round.fill_(t)
            given = zip(graph.inputs.list_tensors(), inputs.list_tensors(), strict=True)
            for own, new in given:
                own.copy_(new)
            self.num_replays += 1
            graph.replay()
            return _copy_outcome(graph.outcome)
        if shape in self._seen and shape not in self._refused and len(self._graphs) < MAX_GRAPHS:
            try:
                return self._record(shape, inputs.copy(), t)
            except NotRecordableError:
                self._refused.add(shape)
        if len(self._seen) < MAX_SHAPES:
            self._seen.add(shape)
        return self._update(inputs, t)

    def _record(self, shape: Hashable, inputs: UpdateInputs, t: int) -> Outcome:
        """Return the outcome of an update, and record it for the next one.

        Raises NotRecordableError if it cannot be recorded.
        """
        self._round.fill_(t)

        def run() -> Outcome:
            return self._update(inputs.forget_derived(), self._round)

        outcome = _copy_outcome(self._recorder.rehearse(run))
        with note_constants() as constants:
            recorded, replay = self._recorder.record(run)
        self._graphs[shape] = _Graph(inputs, recorded, replay, constants)
        return outcome


def _copy(tensors: Tensors) -> Tensors:
    """Copy tensors to memory of their own."""
    return {name: one.clone() for name, one in tensors.items()}


def _copy_outcome(outcome: Outcome) -> Outcome:
    """Copy the tensors of an outcome, which a replay would overwrite."""
    state, payload, loss = outcome
    return _copy(state), tuple(group.map_tensors(torch.clone) for group in payload), loss.clone()
