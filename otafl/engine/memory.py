"""Say how much memory a stack takes, measured on a round of one and of two trials.

Counted are the tensors of the processor that computes, temporary ones of operations in PyTorch
included, those within an operation not.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from otafl import data, models
from otafl.algorithms.custom import settings_of
from otafl.core import registry
from otafl.core.contracts import Cohort
from otafl.core.hyper import hyper_of
from otafl.core.rng import Streams
from otafl.engine.assembly import assemble, method_of
from otafl.engine.engine import Engine
from otafl.scenario import Point, Scenario

SURELY = 1 / 64
"""Stacks whose models and updates take less than this share of the bound are not measured, where
the channel is flat: nothing else of theirs is 64 times as large."""


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
    one, two = (_peak(points[0], range(count)) for count in (1, 2))
    # a trial more need not take more, where the first one's temporaries are the largest
    return Need(max(0, 2 * one - two), max(known, two - one))


def bytes_per_trial(scenario: Scenario) -> int:
    """Estimate the memory that one trial adds to a stack: state of server and devices before and
    after a round, one payload as large as what a device receives, and the index of who holds which
    sample."""
    samples = data.loaded(scenario.data)
    model = models.build(scenario.model, samples.input_shape, samples.classes)
    algorithm = method_of(scenario, model)
    streams = Streams([scenario.seed], [0], "cpu", getattr(torch, scenario.engine.dtype))
    hyper = hyper_of([settings_of(scenario.algorithm)], streams)
    server, devices = algorithm.init(streams, hyper)
    server_reals = sum(block[0].numel() for block in server.values())
    first = torch.zeros(1, dtype=torch.int64)
    one = Cohort.fresh(first, first, torch.ones(1), (1,), 1)
    payload_reals = algorithm.broadcast(server, one).reals
    device_reals = 0
    if scenario.engine.device_state == "memory":
        device_reals = sum(block[0, 0].numel() for block in devices.values())
    count = scenario.devices.count
    senders = scenario.devices.participants or count
    reals = 4 * server_reals + 2 * count * device_reals + 2 * senders * payload_reals
    return reals * torch.finfo(streams.dtype).bits // 8 + 16 * len(samples.y_train)


def _peak(point: Point, trials: Sequence[int]) -> int:
    """Return the most bytes at a time while a stack is put together and goes through a round."""
    counter = Counter()
    with counter:
        Engine(assemble([point], trials)).round(0)
    return counter.peak


class Counter(TorchDispatchMode):
    """Count the bytes of all tensors that are made within it. peak: the most at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self.now = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

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
