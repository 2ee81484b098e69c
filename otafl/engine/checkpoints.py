"""Keep a stack in the middle of its run on disk, so that a killed one goes on where it was.

A checkpoint is the recorder and with it the whole engine, pickled: what is not excluded is in it,
so state that a component comes to have cannot be forgotten. Excluded are the samples, which are
read again, and the clocks, whose SimPy processes cannot be pickled: they are made anew and go
through their journals. On the same kind of processor the numbers go on bit by bit.

Reading a checkpoint runs what is pickled in it: it is to be trusted like a program.
"""

from __future__ import annotations

import contextlib
import pickle
import types
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch import Tensor

from otafl.core.files import written
from otafl.engine.assembly import Parts, assemble
from otafl.engine.recorder import Recorder
from otafl.results.environment import versions
from otafl.scenario import Point, scenario_hash, sources_of


class Kept(NamedTuple):
    """Hold a stack after so many rounds and seconds of computing."""

    recorder: Recorder
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Checkpoint:
    """Say where the state of a stack is kept, and after how many rounds each."""

    path: Path
    every: int

    def due(self, rounds: int) -> bool:
        """Say whether the state after so many rounds is to be kept."""
        return rounds % self.every == 0

    def save(self, kept: Kept, points: Sequence[Point], trials: Sequence[int]) -> None:
        """Save in place of what was kept before. UserError where the disk does not allow it."""
        parts = kept.recorder.engine.parts
        body = {"kept": kept, "journal": parts.clock.journal}
        with written(self.path) as temporary, _without(parts):
            torch.save(_identity(points, trials, parts) | body, temporary, pickle_module=_PICKLE)

    def load(self, points: Sequence[Point], trials: Sequence[int]) -> Kept | None:
        """Return what was kept; None where nothing was of these points and trials, or it is
        damaged, or was made by other versions of the programs, other modules of the user's, or on
        another kind of processor."""
        if not self.path.exists():
            return None
        parts = assemble(points, trials)
        try:
            with _without(parts):
                found = torch.load(self.path, pickle_module=_PICKLE, weights_only=False)
        except Exception:  # there is no telling what damaged bytes raise
            return None
        identity = _identity(points, trials, parts)
        if {name: found.get(name) for name in identity} != identity:
            return None
        parts.clock.replay(found["journal"])
        kept: Kept = found["kept"]
        return kept

    def remove(self) -> None:
        """Remove what was kept, which is of no more use."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def _identity(points: Sequence[Point], trials: Sequence[int], parts: Parts) -> dict[str, Any]:
    """Return what must be equal for a run to go on bit by bit."""
    return {
        "points": [scenario_hash(point.scenario) for point in points],
        "trials": list(trials),
        "versions": versions(),
        "sources": sources_of(points[0].scenario),
        "device": parts.streams.device.type,
        "threads": torch.get_num_threads(),
    }


class _Outside:
    """Hold what a pickle leaves out: it is found in the parts of a stack that are made anew."""

    def __init__(self, parts: Parts) -> None:
        self.clock, self.data = parts.clock, parts.samples.data
        hosts = (self.data.x_train, self.data.x_test, self.data.x_validation)
        here = [torch.from_numpy(x) for x in hosts if x.size and x.flags.writeable]
        self.samples = [parts.samples.local_data.x, *here]
        self.places = {_storage(x): place for place, x in enumerate(self.samples)}


_outside: ContextVar[_Outside] = ContextVar("_outside")


@contextlib.contextmanager
def _without(parts: Parts) -> Iterator[None]:
    """Take samples and clocks from `parts` within it, and not in the pickle."""
    token = _outside.set(_Outside(parts))
    try:
        yield
    finally:
        _outside.reset(token)


class _Pickler(cloudpickle.Pickler):
    """Write names in the place of what is left out."""

    def reducer_override(self, obj: Any) -> Any:
        outside = _outside.get()
        for name in ("clock", "data"):
            if obj is getattr(outside, name):
                return _part, (name,)
        if isinstance(obj, Tensor) and _storage(obj) in outside.places:
            place = outside.places[_storage(obj)]
            return _view, (place, obj.shape, obj.stride(), obj.storage_offset())
        return super().reducer_override(obj)


def _part(name: str) -> Any:
    return getattr(_outside.get(), name)


def _view(place: int, shape: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    return _outside.get().samples[place].as_strided(shape, stride, offset)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


_PICKLE = types.ModuleType("otafl_pickle")
"""What torch takes for a pickle module."""
_PICKLE.__dict__.update(pickle.__dict__, Pickler=_Pickler)
