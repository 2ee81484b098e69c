"""Keep a stack in the middle of its run on disk, so that a killed one goes on where it was.

A checkpoint holds plain data: the blocks of server and devices, counters, what the parts of the
round name in `state_attrs`, and the clocks' journals. The parts are made anew, take back what was
kept, and the clocks, whose SimPy processes cannot be kept, go through their journals. On the same
kind of processor the numbers go on bit by bit. Reading a checkpoint runs nothing that is in it.
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
    """Hold a stack after so many rounds and seconds of computing."""

    recorder: Recorder
    rounds: int
    seconds: float


@dataclass
class Checkpoint:
    """Say where the state of a stack is kept, and after how many rounds each.

    refused: why what was there could not be taken, or empty.
    """

    path: Path
    every: int
    refused: str = field(default="", init=False)

    def due(self, rounds: int) -> bool:
        """Say whether the state after so many rounds is to be kept."""
        return rounds % self.every == 0

    def save(self, kept: Kept, points: Sequence[Point], trials: Sequence[int]) -> None:
        """Save in place of what was kept before.

        Raises WriteError where the disk does not allow it, TypeError where a part of the user's
        says that something in `state_attrs` is no plain data.
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
        """Return what was kept; None where nothing was.

        Nor is it taken, which `refused` then says, where it is of other points and trials or
        damaged, or was made by other versions of the programs, other modules of the user's, or on
        another kind of processor.
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
        """Note why what was kept could not be taken."""
        try:
            yield
        except ChecksumError as error:
            self.refused = f"it is damaged: {error}"
        except Exception as error:  # there is no telling what foreign or damaged bytes raise
            self.refused = f"it cannot be read ({type(error).__name__})"

    def remove(self) -> None:
        """Remove what was kept, which is of no more use."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def change_scenarios(
    source: Path, target: Path, before: Sequence[Point], now: Sequence[Point]
) -> None:
    """Write a checkpoint of points again, as one of points whose scenarios differ in nothing that
    it depends on. Nothing is written if it is of others; raises what `plain.load` does.
    """
    kept = plain.load(source)
    if kept["scenario"] == [scenario_hash(point.scenario) for point in before]:
        kept["scenario"] = [scenario_hash(point.scenario) for point in now]
        plain.save(kept, target)


def _identity(points: Sequence[Point], trials: Sequence[int], device: str) -> dict[str, Any]:
    """Return what must be equal for a run to go on bit by bit."""
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
    """Say which parts of an identity are not equal; empty if all are."""
    other = [name for name, value in wanted.items() if found.get(name) != value]
    return f"it was made with other {' and '.join(other)}" if other else ""
