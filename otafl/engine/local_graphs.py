"""CUDA graphs of local work, which launch all its operations at once.

A round's local work is hundreds to thousands of small operations. A GPU does many of them in less
time than the host takes to launch one. A CUDA graph is the list of such operations as a GPU has
recorded it, with the addresses of their tensors. The host launches the whole list in one call.

A graph knows neither what the host computed nor what it decided while it was recorded. So what
differs from round to round enters through tensors at fixed addresses, the index of the round among
them, and each decision by that index is made again before a replay (`Context.decide`). Local work
that waits for the GPU, and that of user-defined parts, is not recorded.

References
----------
NVIDIA, CUDA C++ Programming Guide, section "CUDA Graphs".
"""

from __future__ import annotations

import dataclasses
import gc
import time
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from otafl.algorithms.base import Outcome
from otafl.core.contracts import Broadcast, Cohort, Decisions, Tensors
from otafl.core.rng import Round

MAX_GRAPHS = 8
"""Most graphs of a stack, which each keep the memory of a chunk's local work."""

MAX_SHAPES = 64
"""Most different chunks that are looked out for; beyond them rounds hardly repeat."""

LOOKS = 5
"""How often to look for tensors that outlive an update, before they count as kept by a cache."""

PAUSE_S = 0.02
"""Time between these looks."""

COHORT_TENSORS = tuple(
    one.name for one in dataclasses.fields(Cohort) if one.type in ("Tensor", Tensor)
)


class NotRecordableError(Exception):
    """Local work waits for the processor that computes, so that no graph can have it."""


class Recorder(Protocol):
    """Means of a processor to record operations and to repeat them."""

    def rehearse(self, run: Callable[[], Outcome]) -> Outcome:
        """Return what `run` returns. Raises NotRecordableError if it waits for the processor."""

    def record(self, run: Callable[[], Outcome]) -> tuple[Outcome, Callable[[], None]]:
        """Record `run`; return its outcome, whose tensors each call of the function fills.

        Raises NotRecordableError if that fails.
        """


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
        except RuntimeError as error:
            if "synchronizing" not in str(error):
                raise
            raise NotRecordableError from error
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def record(self, run: Callable[[], Outcome]) -> tuple[Outcome, Callable[[], None]]:
        """Record `run` without running it; return its outcome and what replays it.

        Raises NotRecordableError if memory is short.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outcome = run()
        except torch.OutOfMemoryError as error:
            raise NotRecordableError from error
        return outcome, graph.replay


def make_recorder(device: torch.device) -> Recorder | None:
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

    def describe_shape(self) -> Hashable:
        """Return what a graph is of: all but the numbers in the tensors."""
        sent, chunk = self.sent, self.chunk
        tensors = tuple((one.shape, one.stride(), one.dtype) for one in self.list_tensors())
        names = tuple(sent.tensors), tuple(self.rows)
        host = chunk.counts, chunk.num_devices, chunk.all_transmit, sent.per_device, self.is_own
        index = None if self.host_index is None else self.host_index.tobytes()
        return (*host, names, tensors, index)

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


Update = Callable[[UpdateInputs, Round, Decisions | None], Outcome]
"""Local update of a chunk in a round."""


@dataclass(frozen=True)
class _Graph:
    """Recorded update: its decisions, outcome and replay, and the tensors whose memory it reads."""

    decisions: Decisions
    outcome: Outcome
    replay: Callable[[], None]
    read: list[Tensor]


@dataclass
class _Shape:
    """Graphs of one shape of chunks, with their inputs. is_refused: there will be no more."""

    inputs: UpdateInputs | None = None
    graphs: list[_Graph] = field(default_factory=list)
    left_tensors: bool = False
    is_refused: bool = False

    def refuse(self) -> None:
        """Record no more graphs; those that there are still read the inputs."""
        self.is_refused = True
        if not self.graphs:
            self.inputs = None


class LocalGraphs:
    """Graphs of the local updates of a stack, one for each shape and each set of decisions.

    The first update of a shape runs as it is, the second also shows whether it can be recorded.

    Parameters
    ----------
    recorder : Recorder
        Means to record operations.
    update : Update
        The local update. It draws the same numbers for the index of a round on the host and on the
        processor.
    device : torch.device
        Processor that computes.
    """

    def __init__(self, recorder: Recorder, update: Update, device: torch.device) -> None:
        self._recorder, self._update = recorder, update
        self._round = torch.zeros((), dtype=torch.int64, device=device)
        self._shapes: dict[Hashable, _Shape] = {}
        self.num_replays = 0

    @property
    def num_graphs(self) -> int:
        """The number of recorded updates."""
        return sum(len(shape.graphs) for shape in self._shapes.values())

    def run(self, inputs: UpdateInputs, t: int) -> Outcome:
        """Return the outcome of a round's local update of a chunk."""
        key = inputs.describe_shape()
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) < MAX_SHAPES:
                self._shapes[key] = _Shape()
            return self._update(inputs, t, None)
        graph = next((one for one in shape.graphs if one.decisions.are_same(t)), None)
        if graph is None and (shape.is_refused or self.num_graphs >= MAX_GRAPHS):
            return self._update(inputs, t, None)
        self._round.fill_(t)
        if shape.inputs is None:
            shape.inputs = inputs.copy()
        else:
            for own, new in zip(shape.inputs.list_tensors(), inputs.list_tensors(), strict=True):
                own.copy_(new)
        if graph is not None:
            self.num_replays += 1
            graph.replay()
            return _copy_outcome(graph.outcome)
        try:
            return self._add_graph(shape, shape.inputs, t)
        except NotRecordableError:
            shape.refuse()
            return self._update(inputs, t, None)

    def _add_graph(self, shape: _Shape, inputs: UpdateInputs, t: int) -> Outcome:
        """Return the outcome of an update that shows whether to record it, and record it if so."""
        watch = _Watch()
        with watch:
            ran = self._recorder.rehearse(
                lambda: self._update(inputs.forget_derived(), self._round, Decisions(t))
            )
        outcome = _copy_outcome(ran)
        if watch.has_left_tensors(ran):
            # of a cache that it filled: in a graph they would have no numbers before the replay
            if shape.left_tensors:
                shape.refuse()
            shape.left_tensors = True
            return outcome
        del ran
        watch, decisions = _Watch(), Decisions(t)

        def run() -> Outcome:
            with watch:
                return self._update(inputs.forget_derived(), self._round, decisions)

        try:
            recorded, replay = self._recorder.record(run)
        except NotRecordableError:
            shape.refuse()
            return outcome
        shape.graphs.append(_Graph(decisions, recorded, replay, list(watch.read.values())))
        return outcome


class _Watch(TorchDispatchMode):
    """Notes the tensors that operations read, if they have not made them.

    read: these tensors, by their identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[int, Tensor] = {}
        self._made: dict[int, weakref.ref[Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for one in _find_tensors((args, kwargs)):
            if id(one) not in self._made:
                self.read[id(one)] = one
        out = func(*args, **(kwargs or {}))
        for one in _find_tensors(out):
            if id(one) not in self.read:
                self._made[id(one)] = weakref.ref(one)
        return out

    def has_left_tensors(self, outcome: Outcome) -> bool:
        """Return whether tensors that were made outlive the operations, beside the outcome."""
        handed = {id(one) for own in _list_tensors(outcome) for one in (own, own._base)}
        for _ in range(LOOKS):
            gc.collect()
            alive = (made() for made in self._made.values())
            if not any(one is not None and id(one) not in handed for one in alive):
                return False
            time.sleep(PAUSE_S)  # threads of autograd drop a gradient's tensors a little later
        return True


def _find_tensors(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors among the arguments or results of an operation."""
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _copy(tensors: Tensors) -> Tensors:
    """Copy tensors to memory of their own."""
    return {name: one.clone() for name, one in tensors.items()}


def _map_outcome(outcome: Outcome, change: Callable[[Tensor], Tensor]) -> Outcome:
    """Return an outcome with all tensors changed."""
    state, payload, loss = outcome
    changed = {name: change(one) for name, one in state.items()}
    return changed, tuple(group.map_tensors(change) for group in payload), change(loss)


def _copy_outcome(outcome: Outcome) -> Outcome:
    """Copy the tensors of an outcome, which a replay would overwrite."""
    return _map_outcome(outcome, torch.clone)


def _list_tensors(outcome: Outcome) -> list[Tensor]:
    """List the tensors of an outcome."""
    found: list[Tensor] = []

    def note(one: Tensor) -> Tensor:
        found.append(one)
        return one

    _map_outcome(outcome, note)
    return found
