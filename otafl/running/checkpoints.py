"""Checkpoints: the state of a stack on disk, from which a killed run continues.

A checkpoint contains plain data: the tensors of server and devices, counters, the `state_attrs` of
the round's parts, and the clocks' journals. To continue, the parts are assembled again and load
their state. SimPy processes cannot be saved, so the clocks replay their journals. On the same kind
of processor the numbers continue bit by bit. Reading a checkpoint runs no code from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from otafl.engine import assembly
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.results import plain
from otafl.results.checksums import ChecksumError
from otafl.results.environment import versions
from otafl.scenario import Point, scenario_hash, sources_of


class Kept(NamedTuple):
    """A stack after a number of rounds and seconds of computing."""

    recorder: Recorder
    rounds: int
    seconds: float


@dataclass
class Checkpoint:
    """File for the state of a stack, and the number of rounds between saves.

    refused: the reason why an existing checkpoint was not used, or empty.
    """

    path: Path
    every: int
    refused: str = field(default="", init=False)

    def due(self, rounds: int) -> bool:
        """Return whether the state is saved after this number of rounds."""
        return rounds % self.every == 0

    def save(self, kept: Kept, points: Sequence[Point], trials: Sequence[int]) -> None:
        """Save the state, instead of the previous one.

        Raises WriteError if the disk does not allow it, and TypeError if an attribute in the
        `state_attrs` of a user-defined part is not plain data.
        """
        parts = kept.recorder.engine.parts
        body = {
            "recorder": kept.recorder.state_dict(),
            "journal": parts.clock.journal,
            "rounds": kept.rounds,
            "seconds": kept.seconds,
        }
        plain.save(_identity(points, trials, parts.streams.device.type) | body, self.path)

    def load(self, points: Sequence[Point], trials: Sequence[int]) -> Kept | None:
        """Return the saved state; None without one.

        A state is refused, with the reason in `refused`, if it is damaged or belongs to other
        points and trials, versions of programs, user-defined modules, or another kind of processor.
        """
        if not self.path.exists():
            return None
        with self._note_refusal():
            found = plain.load(self.path)
            device = assembly.torch_device(points[0].scenario.engine.device)
            self.refused = _difference(_identity(points, trials, device.type), found)
        if self.refused:
            return None
        parts = assembly.assemble(points, trials)
        with self._note_refusal():
            recorder = Recorder(Engine(parts), len(points), len(trials))
            recorder.load_state_dict(found["recorder"])
            parts.clock.replay(found["journal"])
            return Kept(recorder, int(found["rounds"]), float(found["seconds"]))
        return None

    @contextlib.contextmanager
    def _note_refusal(self) -> Iterator[None]:
        """Record the reason why a saved state could not be used."""
        try:
            yield
        except ChecksumError as error:
            self.refused = f"it is damaged: {error}"
        except Exception as error:  # foreign or damaged bytes may raise any error
            self.refused = f"it cannot be read ({type(error).__name__})"

    def remove(self) -> None:
        """Remove the saved state, which is no longer needed."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def change_scenarios(
    source: Path, target: Path, before: Sequence[Point], now: Sequence[Point]
) -> None:
    """Copy a checkpoint for points whose scenarios differ only where it does not depend on them.

    Nothing is written if it belongs to other points. Raises what `plain.load` does.
    """
    kept = plain.load(source)
    if kept["scenario"] == [scenario_hash(point.scenario) for point in before]:
        kept["scenario"] = [scenario_hash(point.scenario) for point in now]
        plain.save(kept, target)


def _identity(points: Sequence[Point], trials: Sequence[int], device: str) -> dict[str, Any]:
    """Return the values that must be equal for a run to continue bit by bit."""
    return {
        "scenario": [scenario_hash(point.scenario) for point in points],
        "trials": list(trials),
        "versions": versions(),
        "sources": sources_of(points[0].scenario),
        "processor": device,
        "threads": torch.get_num_threads(),
        "chunk_mb": points[0].scenario.engine.chunk_mb,
    }


def _difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """Name the unequal parts of an identity; empty if all are equal."""
    other = [name for name, value in wanted.items() if found.get(name) != value]
    return f"it was made with other {' and '.join(other)}" if other else ""
