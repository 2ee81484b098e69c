"""Memory of a stack: estimated from its state, and measured if necessary.

The measurement runs one round of one trial and of two. It counts tensors on the processor that
computes, including temporary ones between PyTorch's operations, but not those within an operation.
"""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from otafl import models
from otafl.algorithms.base import Algorithm
from otafl.channels.fading import draw_whole_blocks
from otafl.core import registry
from otafl.core.contracts import Cohort
from otafl.core.errors import UserError
from otafl.core.hyper import build_hyper
from otafl.core.rng import Round, Streams
from otafl.core.suggestions import format_count
from otafl.csi.long_term import repeat_states
from otafl.data.shape import DataShape, read_shape
from otafl.engine.assembly import assemble, build_algorithm
from otafl.engine.engine import Engine
from otafl.models.base import Model
from otafl.scenario import Point, Scenario

A_DEVICE = 300
"""Bytes of the numbers that a device of a trial has in addition to its state.

These are sample indices, channel, powers, joules and seconds. Measured as the growth of the
resident memory per trial, in a run of 10^6 devices of which 20 take part.
"""

SURELY = 1 / 64
"""Share of the bound below which the models and updates of a stack are not measured.

It requires a flat channel: nothing else of a stack is 64 times as large.
"""

SAFELY = 1 / 4
"""Share of the bound below which one trial is measured, and not two.

Trials of a stack take at most as much each as one alone, but for what is rounded up.
"""

SMALL_BYTES = 2**28
"""Largest size of a state that is created to measure it, in bytes."""

INDEX_BYTES = 16
"""Bytes of a trial for each training sample: the index of the devices' samples."""


class TrialEstimate(NamedTuple):
    """Lower bound on the bytes that one trial adds to a stack, and its model."""

    bytes: int
    model: Model


class MemoryNeed(NamedTuple):
    """Bytes that a stack needs: fixed, and for each trial of each point."""

    fixed: int
    per_trial: int

    def count_trials_within(self, bound: float) -> int:
        """Return the number of trials that fit, at least one."""
        return max(1, int((bound - self.fixed) // max(1, self.per_trial)))


def estimate_trial(scenario: Scenario, shape: DataShape) -> TrialEstimate:
    """Estimate the memory that one trial adds to a stack, without the channel.

    It is the state of the server before and after a round, that of the devices, one payload of the
    size of the broadcast, the index of the devices' samples, and the few numbers of each device.
    """
    model = models.build(scenario.model, shape.input_shape, shape.classes, scenario.loss)
    state = _estimate_state_bytes(scenario.topology.make_server_scenario(scenario), model)
    servers = scenario.topology.count(scenario)
    return TrialEstimate(servers * state + INDEX_BYTES * shape.samples, model)


def estimate_need(points: Sequence[Point]) -> MemoryNeed:
    """Return the memory that a stack of the points needs.

    It is measured on the first point, unless the estimate is far below `engine.memory_gb` for all.
    Two trials are measured if as many times what one takes is not far below it.
    """
    scenario = points[0].scenario
    known = estimate_trial(scenario, read_shape(scenario.data)).bytes
    bound = _bound(scenario)
    trials = scenario.trials * len(points)
    flat = registry.load_component("channel", scenario.channel.name).is_flat
    small = flat and known * trials < SURELY * bound
    if trials == 1 or small or known > bound:
        return MemoryNeed(0, known)
    try:
        one = _measure_peak(points[0], range(1))
        if max(known, one) * trials < SAFELY * bound:
            return MemoryNeed(0, max(known, one))
        two = _measure_peak(points[0], range(2))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return MemoryNeed(0, int(bound))
    # a further trial may take no more, if the first one's temporaries are the largest
    return MemoryNeed(max(0, 2 * one - two), max(known, two - one))


def check_room(scenario: Scenario) -> None:
    """Read the data, and raise UserError if one trial takes more memory than this machine has."""
    check_channel(scenario)
    fault = find_shortage(scenario, estimate_trial(scenario, read_shape(scenario.data)))
    if fault:
        raise UserError(fault)


def check_channel(scenario: Scenario) -> None:
    """Raise UserError if the channel of one round takes more memory than this machine has."""
    channel = scenario.channel
    participants = count_participants(scenario)
    antennas = getattr(channel, "antennas", None) or 1
    groups = getattr(channel, "subcarrier_groups", None) or 1
    needed = participants * antennas * groups * _get_dtype(scenario).to_complex().itemsize
    there = _get_total_memory(scenario.engine.device)
    if needed > there:
        raise UserError(
            f"channel.antennas: the channel of one round takes {needed / 1e9:,.0f} GB at least "
            f"({format_count(participants, 'device')}, {format_count(antennas, 'antenna')}, "
            f"{format_count(groups, 'sub-carrier group')}), and this machine has "
            f"{there / 1e9:,.0f} GB; use fewer antennas"
        )


def find_shortage(scenario: Scenario, trial: TrialEstimate) -> str:
    """Return a sentence if a trial takes more memory than this machine has, else an empty one."""
    there = _get_total_memory(scenario.engine.device)
    if trial.bytes <= there:
        return ""
    return (
        f"model: one trial takes {trial.bytes / 1e9:,.0f} GB at least ({scenario.model.name} of "
        f"{trial.model.num_params:,} parameters, "
        f"{format_count(scenario.devices.count, 'device')}), and this machine has "
        f"{there / 1e9:,.0f} GB; use a smaller model, fewer devices or another machine"
    )


def find_excess_bound(scenario: Scenario) -> str:
    """Return a sentence if `engine.memory_gb` is more than this machine has, else an empty one."""
    there = _get_total_memory(scenario.engine.device)
    if _bound(scenario) <= there:
        return ""
    return (
        f"engine.memory_gb: {scenario.engine.memory_gb:g} is more than the {there / 2**30:.0f} GiB "
        "of this machine, where a stack may run out of memory and is then split"
    )


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means a lack of memory, of the host or of a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "out of memory" in text
    )


def count_participants(scenario: Scenario) -> int:
    """Return the largest number of participants in a round."""
    return int(scenario.devices.participants or scenario.devices.count)


def _bound(scenario: Scenario) -> float:
    """Return the largest number of bytes of a stack."""
    return float(scenario.engine.memory_gb * 2**30)


def _get_total_memory(device: str) -> int:
    """Return the total bytes of memory of the processor that computes."""
    if device != "cpu" and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _estimate_state_bytes(scenario: Scenario, model: Model) -> int:
    """Return the bytes of a trial's state with one server.

    A small state is created, because PyTorch needs a second to import its compiler for arithmetic
    without numbers. The state of a method that reads its initial numbers is created, too, up to
    `engine.memory_gb`; for a larger one the result is a lower bound.
    """
    count, bound = scenario.devices.count, _bound(scenario)
    table = (model.num_params + count) * count * _get_dtype(scenario).itemsize  # in one operation
    if table <= bound:
        with contextlib.suppress(RuntimeError), MemoryCounter(SMALL_BYTES):
            return _measure_state_bytes(scenario, model)
    known = _infer_state_bytes(scenario, model)
    if known is not None:
        return known
    least = model.num_params * _get_dtype(scenario).itemsize
    if least > bound or table > _get_total_memory(scenario.engine.device):
        return least
    counter = MemoryCounter(max(bound, SMALL_BYTES))
    try:
        with counter:
            return _measure_state_bytes(scenario, model)
    except RuntimeError:
        if counter.peak <= counter.bound:
            raise
        return max(least, counter.peak)


def _measure_state_bytes(scenario: Scenario, model: Model) -> int:
    """Create a trial's state, discard it and return its bytes."""
    streams = Streams([scenario.seed], [0], "cpu", _get_dtype(scenario))
    return _count_state_bytes(scenario, model, streams)


def _infer_state_bytes(scenario: Scenario, model: Model) -> int | None:
    """Return the bytes of a trial's state without creating it.

    None for a method that reads its numbers, and for more numbers than can be addressed.
    """
    streams = _ShapeOnlyStreams(scenario)
    try:
        with torch.device("meta"):
            return _count_state_bytes(scenario, model, streams)
    except (RuntimeError, NotImplementedError):
        return None


class _ShapeOnlyStreams(Streams):
    """Random arrays with a shape, but without numbers."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__([scenario.seed], [0], "cpu", _get_dtype(scenario))
        self.device = torch.device("meta")

    def _draw(
        self, law: Any, purpose: str, round: Round, shape: tuple[int, ...], pairs: Any
    ) -> torch.Tensor:
        rows = self.num_trials if pairs is None else len(pairs[0])
        return torch.empty(rows, *shape, dtype=self.dtype, device=self.device)


def _count_state_bytes(scenario: Scenario, model: Model, streams: Streams) -> int:
    algorithm = build_algorithm(scenario, model)
    hyper = build_hyper([scenario.algorithm.values], streams)
    server, devices = algorithm.init(streams, hyper)
    server_reals = sum(block[0].numel() for block in server.values())
    first = torch.zeros(1, dtype=torch.int64)
    one = Cohort.create(first, first, torch.ones(1), (1,), 1)
    payload_reals = algorithm.broadcast(server, one).num_coordinates
    device_reals = 0
    if scenario.engine.device_state == "memory":
        device_reals = sum(block[0, 0].numel() for block in devices.values())
    num_coordinates = 4 * server_reals + 2 * count_participants(scenario) * payload_reals
    num_coordinates += _bound_rows(scenario, algorithm) * device_reals
    return num_coordinates * streams.dtype.itemsize + A_DEVICE * scenario.devices.count


def _bound_rows(scenario: Scenario, algorithm: Algorithm) -> int:
    """Return an upper bound on the rows of device state of a trial.

    They are the stored rows, and in addition those of a round's work, or of the state of all
    devices that is assembled for a test (`Algorithm.is_per_device`).
    """
    count, kept = scenario.devices.count, _count_stored_rows(scenario)
    if kept == count:
        return 2 * count
    return min(
        2 * count, kept + (count_participants(scenario) if algorithm.is_per_device else count)
    )


def _count_stored_rows(scenario: Scenario) -> int:
    """Return an upper bound on the stored rows of state for the devices of a trial (`DeviceStore`).

    It is one row each if half of them may take part in the run. Otherwise it is the rows of the
    participants and, during a reallocation, twice as many again.
    """
    count = scenario.devices.count
    took_part = count_participants(scenario) * scenario.training.rounds
    return count if 2 * took_part > count else 3 * took_part


def _get_dtype(scenario: Scenario) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, scenario.engine.dtype)
    return dtype


def _measure_peak(point: Point, trials: Sequence[int]) -> int:
    """Return the peak number of bytes during the assembly and first round of a stack.

    The rows that devices get in later rounds are added.
    """
    counter = MemoryCounter()
    with counter, repeat_states(), draw_whole_blocks():
        engine = Engine(assemble([point], trials))
        engine.run_round(0)
    stores = [engine.memory]
    if point.scenario.engine.device_state == "memory":
        stores.append(engine.devices)
    rows = _count_stored_rows(point.scenario) * len(trials)
    to_come = sum(max(0, rows - store.num_allocated) * store.row_bytes for store in stores)
    return counter.peak + to_come


class MemoryCounter(TorchDispatchMode):
    """A count of the bytes of all tensors that are created inside. peak: the largest count.

    Raises RuntimeError once the count exceeds `bound`.
    """

    def __init__(self, bound: float = math.inf) -> None:
        super().__init__()
        self.bound = bound
        self.peak = self.now = 0
        self._live_sizes: dict[int, weakref.ref[Any]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that PyTorch does not import its compiler."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                self._on_allocate(tensor.untyped_storage())
        return out

    def _on_allocate(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._live_sizes:
            return

        def on_free(_: Any) -> None:
            if self._live_sizes.pop(key, None) is not None:
                self.now -= size

        self._live_sizes[key] = weakref.ref(storage, on_free)
        self.now += size
        self.peak = max(self.peak, self.now)
        if self.now > self.bound:
            raise RuntimeError(f"{self.now} bytes of tensors, more than {self.bound}")
