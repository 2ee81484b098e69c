"""How much memory a stack takes: measured on a round of one and of two trials.

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

from otafl.engine.assembly import assemble, bytes_per_trial
from otafl.engine.engine import Engine
from otafl.scenario import Point

SURELY = 1 / 64
"""Stacks whose models and updates take less than this share of the bound are not measured, where
the channel is flat: nothing else of theirs is 64 times as large."""

FLAT = ("awgn", "rayleigh", "rician")


class Need(NamedTuple):
    """Bytes of a stack: fixed, and for each trial of each point."""

    fixed: int
    per_trial: int

    def trials_within(self, bound: float) -> int:
        """How many trials fit, one at least."""
        return max(1, int((bound - self.fixed) // max(1, self.per_trial)))


def need(points: Sequence[Point]) -> Need:
    """Of a stack of the points. Measured on the first, unless what is known of it shows that all
    are far within `engine.memory_gb`."""
    scenario = points[0].scenario
    known = bytes_per_trial(scenario)
    bound = scenario.engine.memory_gb * 2**30
    trials = scenario.trials * len(points)
    if trials == 1:
        return Need(0, known)
    if scenario.channel.name in FLAT and known * trials < SURELY * bound:
        return Need(0, known)
    if known > bound:
        return Need(0, known)
    one, two = (_peak(points[0], range(count)) for count in (1, 2))
    # a trial more need not take more, where the first one's temporaries are the largest
    return Need(max(0, 2 * one - two), max(known, two - one))


def _peak(point: Point, trials: Sequence[int]) -> int:
    """Most bytes at a time while a stack is put together and goes through a round."""
    counter = Counter()
    with counter:
        Engine(assemble([point], trials)).round(0)
    return counter.peak


class Counter(TorchDispatchMode):
    """Counts the bytes of all tensors that are made within it. peak: the most at a time."""

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
