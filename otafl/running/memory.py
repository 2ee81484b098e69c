"""Say how much memory a stack takes, measured on a round of one and of two trials.

Counted are the tensors of the processor that computes, temporary ones of operations in PyTorch
included, those within an operation not.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from otafl import data, models
from otafl.algorithms.base import Algorithm
from otafl.core import registry
from otafl.core.contracts import Cohort
from otafl.core.errors import UserError
from otafl.core.hyper import hyper_of
from otafl.core.rng import Streams
from otafl.core.words import counted
from otafl.engine.assembly import assemble, method_of
from otafl.engine.engine import Engine
from otafl.models.base import Model
from otafl.scenario import Point, Scenario

A_DEVICE = 300
"""Bytes of the numbers that a device of a trial has beside its state: which samples, the channel,
powers, joules, seconds. Measured: what a trial more adds to the resident memory of a run of 10^6
devices of which 20 take part."""

SURELY = 1 / 64
"""Stacks whose models and updates take less than this share of the bound are not measured, where
the channel is flat: nothing else of theirs is 64 times as large."""


SMALL_BYTES = 2**28
"""Most bytes of a state that is made to know its size."""

MOST_SIZES = 100
"""Different sizes of a sweep's trials that are reckoned before it runs."""


class Need(NamedTuple):
    """Hold the bytes that a stack needs: fixed, and for each trial of each point."""

    fixed: int
    per_trial: int

    def trials_within(self, bound: float) -> int:
        """Return how many trials fit, one at least."""
        return max(1, int((bound - self.fixed) // max(1, self.per_trial)))


def need(points: Sequence[Point]) -> Need:
    """Return what a stack of the points needs.

    It is measured on the first, unless what is known of it shows that all are far within
    `engine.memory_gb`.
    """
    scenario = points[0].scenario
    known = bytes_per_trial(scenario)
    bound = scenario.engine.memory_gb * 2**30
    trials = scenario.trials * len(points)
    if trials == 1:
        return Need(0, known)
    flat = registry.component("channel", scenario.channel.name).flat
    if flat and known * trials < SURELY * bound:
        return Need(0, known)
    if known > bound:
        return Need(0, known)
    try:
        one, two = (_peak(points[0], range(count)) for count in (1, 2))
    except Exception as error:
        if not ran_out_of_memory(error):
            raise
        return Need(0, int(bound))
    # a trial more need not take more, where the first one's temporaries are the largest
    return Need(max(0, 2 * one - two), max(known, two - one))


def bytes_per_trial(scenario: Scenario) -> int:
    """Estimate the memory that one trial adds to a stack: state of the server before and after a
    round, that of the devices, one payload as large as what a device receives, the index of who
    holds which sample, and the few numbers that there are of each device."""
    samples = data.loaded(scenario.data)
    model = models.build(scenario.model, samples.input_shape, samples.classes)
    alone = scenario.topology.of_server(scenario)
    known = _known(alone, model)
    if known <= scenario.engine.memory_gb * 2**30:
        known = _with_numbers(alone, model)
    return scenario.topology.count(scenario) * known + 16 * len(samples.y_train)


def check_channel(scenario: Scenario) -> None:
    """Raise UserError if the channel of one round takes more memory than there is."""
    channel, devices = scenario.channel, scenario.devices
    taking_part = min(devices.participants or devices.count, devices.count)
    antennas = getattr(channel, "antennas", None) or 1
    groups = getattr(channel, "subcarrier_groups", None) or 1
    needed = taking_part * antennas * groups * _precision(scenario).to_complex().itemsize
    there = _room(scenario.engine.device)
    if needed > there:
        raise UserError(
            f"channel.antennas: the channel of one round takes {needed / 1e9:,.0f} GB at least "
            f"({counted(taking_part, 'device')}, {counted(antennas, 'antenna')}, "
            f"{counted(groups, 'sub-carrier group')}), and this machine has {there / 1e9:,.0f} GB; "
            "fewer antennas would do"
        )


def check_room(scenario: Scenario) -> None:
    """Raise UserError if one trial takes more memory than there is. Reads the data."""
    check_channel(scenario)
    samples = data.loaded(scenario.data)
    fault = _no_room(scenario, samples.input_shape, samples.classes)
    if fault:
        raise UserError(fault)


def no_room(points: Sequence[Point]) -> list[str]:
    """Say which trials take more memory than there is, as far as the scenario alone can tell.

    Looks at `MOST_SIZES` different ones at most; says nothing of data whose shape is not known
    before they are read.
    """
    sizes: dict[str, Scenario] = {}
    for point in points:
        one = point.scenario
        count = (one.devices.count, one.devices.participants)
        sizes.setdefault(repr((one.data.name, one.model, one.algorithm, *count)), one)
    said = [_beyond(points[0].scenario)]
    for one in itertools.islice(sizes.values(), MOST_SIZES):
        if one.data.input_shape is not None and one.data.classes is not None:
            said.append(_no_room(one, one.data.input_shape, one.data.classes))
    return [text for text in dict.fromkeys(said) if text]


def _beyond(scenario: Scenario) -> str:
    """Say that the bound on a stack's memory is more than there is, or nothing."""
    bound, there = scenario.engine.memory_gb * 2**30, _room(scenario.engine.device)
    if bound <= there:
        return ""
    return (
        f"engine.memory_gb: {scenario.engine.memory_gb:g} is more than the {there / 2**30:.0f} GiB "
        "of this machine, where a stack may run out of memory and is then split"
    )


def ran_out_of_memory(error: Exception) -> bool:
    """Say whether an error means that memory is short, of the host or of a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "out of memory" in text
    )


def _no_room(scenario: Scenario, input_shape: tuple[int, ...], classes: int) -> str:
    model = models.build(scenario.model, input_shape, classes)
    needed, there = _known(scenario, model), _room(scenario.engine.device)
    if needed <= there:
        return ""
    return (
        f"model: one trial takes {needed / 1e9:,.0f} GB at least ({scenario.model.name} of "
        f"{model.size:,} parameters, {counted(scenario.devices.count, 'device')}), and this "
        f"machine has {there / 1e9:,.0f} GB; a smaller model, fewer devices or another machine "
        "would do"
    )


def _room(device: str) -> int:
    """Return the bytes of memory of the processor that computes, free or not."""
    if device != "cpu" and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _known(scenario: Scenario, model: Model) -> int:
    """Return the bytes of a trial's state, which is made as long as it is small: PyTorch imports
    its compiler, for a second, to do arithmetic without numbers."""
    count = scenario.devices.count
    table = (model.size + count) * count * _precision(scenario).itemsize  # in one operation
    if table <= scenario.engine.memory_gb * 2**30:
        with contextlib.suppress(RuntimeError), Counter(SMALL_BYTES):
            return _with_numbers(scenario, model)
    return _without_numbers(scenario, model)


def _with_numbers(scenario: Scenario, model: Model) -> int:
    """Return the bytes of a trial's state, which is made and thrown away."""
    streams = Streams([scenario.seed], [0], "cpu", _precision(scenario))
    return _bytes_of_state(scenario, model, streams)


def _without_numbers(scenario: Scenario, model: Model) -> int:
    """Return the bytes of a trial's state without making it.

    Those of the model's parameters alone for a method that must look at the numbers it starts
    from, and of more numbers than can be addressed.
    """
    streams = _Unmade(scenario)
    try:
        with torch.device("meta"):
            return _bytes_of_state(scenario, model, streams)
    except (RuntimeError, NotImplementedError):
        return model.size * _precision(scenario).itemsize


class _Unmade(Streams):
    """Draw arrays that have a shape, but no numbers."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__([scenario.seed], [0], "cpu", _precision(scenario))
        self.device = torch.device("meta")

    def _draw(
        self, law: Any, purpose: str, round: int, shape: tuple[int, ...], pairs: Any
    ) -> torch.Tensor:
        rows = self.size if pairs is None else len(pairs[0])
        return torch.empty(rows, *shape, dtype=self.dtype, device=self.device)


def _bytes_of_state(scenario: Scenario, model: Model, streams: Streams) -> int:
    algorithm = method_of(scenario, model)
    hyper = hyper_of([scenario.algorithm.values], streams)
    server, devices = algorithm.init(streams, hyper)
    server_reals = sum(block[0].numel() for block in server.values())
    first = torch.zeros(1, dtype=torch.int64)
    one = Cohort.fresh(first, first, torch.ones(1), (1,), 1)
    payload_reals = algorithm.broadcast(server, one).reals
    device_reals = 0
    if scenario.engine.device_state == "memory":
        device_reals = sum(block[0, 0].numel() for block in devices.values())
    senders = scenario.devices.participants or scenario.devices.count
    reals = 4 * server_reals + 2 * senders * payload_reals
    reals += _rows(scenario, algorithm) * device_reals
    return reals * streams.dtype.itemsize + A_DEVICE * scenario.devices.count


def _rows(scenario: Scenario, algorithm: Algorithm) -> int:
    """Return of how many devices' worth the state of a trial's devices is at most: what is kept,
    and a round's work beside it or the state of all that is put together for a test
    (`Algorithm.apart`)."""
    devices, kept = scenario.devices, _rows_kept(scenario)
    if kept == devices.count:
        return 2 * devices.count
    asked = devices.participants or devices.count
    return min(2 * devices.count, kept + max(asked, 0 if algorithm.apart else devices.count))


def _rows_kept(scenario: Scenario) -> int:
    """Return how many rows of state there are at most for the devices of a trial (`DeviceStore`):
    one each if half of them may take part in the run; else those of who does, and while there is
    made room for more twice as many again."""
    devices = scenario.devices
    took_part = (devices.participants or devices.count) * scenario.training.rounds
    return devices.count if 2 * took_part > devices.count else 3 * took_part


def _precision(scenario: Scenario) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, scenario.engine.dtype)
    return dtype


def _peak(point: Point, trials: Sequence[int]) -> int:
    """Return the most bytes at a time while a stack is put together and goes through a round, and
    those of the rows that devices get in the rounds to come."""
    counter = Counter()
    with counter:
        engine = Engine(assemble([point], trials))
        engine.round(0)
    stores = [engine.memory]
    if point.scenario.engine.device_state == "memory":
        stores.append(engine.devices)
    rows = _rows_kept(point.scenario) * len(trials)
    to_come = sum(max(0, rows - store.allocated) * store.row_bytes for store in stores)
    return counter.peak + to_come


class Counter(TorchDispatchMode):
    """Count the bytes of all tensors that are made within it. peak: the most at a time. Raises
    RuntimeError once they are more than `most`."""

    def __init__(self, most: float = math.inf) -> None:
        super().__init__()
        self.most = most
        self.peak = self.now = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Have PyTorch not import its compiler to keep it away from here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                self._made(tensor.untyped_storage())
        return out

    def _made(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return

        def freed(_: Any) -> None:
            if self._alive.pop(key, None) is not None:
                self.now -= size

        self._alive[key] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)
        if self.now > self.most:
            raise RuntimeError(f"{self.now} bytes of tensors, more than {self.most}")
