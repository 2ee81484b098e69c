"""The run of one stack of trials: from its points to the record, checkpoints, and tracking.

A checkpoint is the state of a stack on disk, from which a killed run continues. It contains plain
data: the tensors of server and devices, counters, the `state_attrs` of the round's parts. To
continue, the parts are assembled again and load their state. SimPy processes cannot be saved, so a
clock of them repeats its journal. On the same kind of processor the numbers continue bit by bit.
Reading a checkpoint runs no code from it.

The tracker of every run receives its records. A run is a trial of a point: trials come one by one
and not as a mean, because those of a point may run in several batches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from otafl.core.checksums import ChecksumError
from otafl.core.errors import UserError
from otafl.engine import assembly
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.evaluation.trained_models import collect
from otafl.results import models as trained
from otafl.results.dataset import Record
from otafl.results.origins import get_versions
from otafl.results.variables import LEVELS, SUMS, get_variable
from otafl.running.memory import check_room
from otafl.scenario import Point, compute_scenario_hash, hash_custom_sources
from otafl.tracking.trackers import Log, Run, Tracker

Progress = Callable[[int, int], None]
"""Function that is called after each round with (rounds done, rounds in total)."""


class CheckpointState(NamedTuple):
    """A stack after a number of rounds and seconds of computing."""

    recorder: Recorder
    rounds: int
    seconds: float


@dataclass
class Checkpoint:
    """File for the state of a stack, and the number of rounds between saves.

    refusal: the reason why an existing checkpoint was not used, or empty.
    """

    path: Path
    every: int
    refusal: str = field(default="", init=False)

    def save(self, state: CheckpointState, points: Sequence[Point], trials: Sequence[int]) -> None:
        """Save the state, instead of the previous one.

        Raises WriteError if the disk does not allow it, and TypeError if an attribute in the
        `state_attrs` of a user-defined part is not plain data.
        """
        parts = state.recorder.engine.parts
        body = {
            "recorder": state.recorder.state_dict(),
            "rounds": state.rounds,
            "seconds": state.seconds,
        }
        trained.save_plain(
            _build_identity(points, trials, parts.streams.device.type) | body, self.path
        )

    def load(self, points: Sequence[Point], trials: Sequence[int]) -> CheckpointState | None:
        """Return the saved state; None without one.

        A state is refused, with the reason in `refusal`, if it is damaged or belongs to other
        points and trials, versions of programs, user-defined modules, or another kind of processor.
        """
        if not self.path.exists():
            return None
        parts = assembly.assemble(points, trials)
        identity = _build_identity(points, trials, parts.streams.device.type)
        try:
            found = trained.load_plain(self.path)
            other = [name for name, value in identity.items() if found.get(name) != value]
            self.refusal = f"it was made with other {' and '.join(other)}" if other else ""
            if not other:
                recorder = Recorder(Engine(parts), len(points), len(trials))
                recorder.load_state_dict(found["recorder"])
                return CheckpointState(recorder, int(found["rounds"]), float(found["seconds"]))
        except ChecksumError as error:
            self.refusal = f"it is damaged: {error}"
        except Exception as error:  # foreign or damaged bytes may raise any error
            self.refusal = f"it cannot be read ({type(error).__name__})"
        return None


def _build_identity(points: Sequence[Point], trials: Sequence[int], device: str) -> dict[str, Any]:
    """Return the values that must be equal for a run to continue bit by bit."""
    return {
        "scenario": [compute_scenario_hash(point.scenario) for point in points],
        "trials": list(trials),
        "versions": get_versions(),
        "sources": hash_custom_sources(points[0].scenario),
        "processor": device,
        "threads": torch.get_num_threads(),
        "chunk_mb": points[0].scenario.engine.chunk_mb,
    }


@dataclass
class TrackingOutput:
    """Folder for the output of trackers. lost: a sentence for each run whose tracking failed."""

    folder: Path
    lost: list[str] = field(default_factory=list, init=False)


class RunTracking(contextlib.ExitStack):
    """Tracking of the runs of a stack; leaving it closes them.

    If a tracker fails during a run, it is no longer called, and the run continues.

    Raises
    ------
    UserError
        If a tracker cannot begin.
    """

    def __init__(
        self, points: Sequence[Point], trials: Sequence[int], tracks: TrackingOutput | None
    ) -> None:
        super().__init__()
        self._tracker: Tracker = points[0].scenario.track
        self._lost = [] if tracks is None else tracks.lost
        self._logs: dict[int, tuple[Run, Log]] = {}
        self._num_logged = 0
        if tracks is not None and not self._tracker.skips_all_runs:
            self._tracker.check_ready()
            runs = []  # in the order of the stack's rows
            for point in points:
                plain = point.scenario.model_dump(mode="json", exclude={"sweep"})
                about = (plain, compute_scenario_hash(point.scenario))
                where = tracks.folder, point.index, point.coords
                runs += [Run(*where, trial, *about) for trial in trials]
            for row, run in enumerate(runs):
                self._open(row, run)

    def log_new_records(self, recorder: Recorder) -> None:
        """Pass the recorder's new records to the trackers."""
        news = list(zip(recorder.rounds, recorder.taken, strict=True))[self._num_logged :]
        self._num_logged += len(news)
        for row, (run, log) in list(self._logs.items()):
            try:
                for round, taken in news:
                    if values := select_values(taken, row):
                        log(round, values)
            except Exception as error:  # any error of user-defined code or a service
                del self._logs[row]
                self._drop_run(run, error)

    def _open(self, row: int, run: Run) -> None:
        try:
            manager = self._tracker.open_run(run)
            if manager is None:
                return
            self._logs[row] = run, manager.__enter__()
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"track: {self._tracker.name} cannot begin with {run.name} "
                f"({_format_error(error)}); use track: none to run without it"
            ) from error

        def leave(*raised: Any) -> None:
            try:
                manager.__exit__(*raised)
            except Exception as error:
                self._drop_run(run, error)

        self.push(leave)

    def _drop_run(self, run: Run, error: Exception) -> None:
        self._lost.append(f"track: {self._tracker.name} lost {run.name} ({_format_error(error)})")


def select_values(record: Mapping[str, np.ndarray], row: int) -> dict[str, float]:
    """Return the values of one trial in a record, name -> finite value.

    Joules of devices are summed over devices and causes. Values by model size have the level after
    the name (`level_test_accuracy/0`). Other values of single devices are left out. Empty for a
    trial that had stopped before.
    """
    found: dict[str, float] = {}
    for name, values in record.items():
        own = values[row]
        if name in SUMS:
            own = own.sum()
        if own.ndim == 0:
            found[name] = float(own)
        elif get_variable(name).dims == LEVELS:
            found |= {f"{name}/{level}": float(one) for level, one in enumerate(own)}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _format_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def run_stack(
    points: Sequence[Point],
    progress: Progress | None = None,
    trials: Sequence[int] | None = None,
    checkpoint: Checkpoint | None = None,
    tracks: TrackingOutput | None = None,
) -> Record:
    """Run points of one stack key with all trials stacked, and return the record.

    checkpoint: the run continues from its state, and saves its state there. tracks: enables the
    scenario's tracker. Raises UserError for errors that the scenario does not show: missing data, a
    model that the algorithm cannot train.
    """
    scenario = points[0].scenario
    if scenario.engine.threads:
        torch.set_num_threads(scenario.engine.threads)
    check_room(scenario)
    numbers = list(range(scenario.trials)) if trials is None else list(trials)
    total = scenario.training.rounds
    with RunTracking(points, numbers, tracks) as following:
        start = None if checkpoint is None else checkpoint.load(points, numbers)
        if start is None:
            engine = Engine(assembly.assemble(points, numbers))
            if checkpoint is not None:
                engine.parts.clock.journal = []
            start = CheckpointState(Recorder(engine, len(points), len(numbers)), 0, 0.0)
            start.recorder.take_record(0, 0.0)
        recorder, done, seconds = start
        engine = recorder.engine
        following.log_new_records(recorder)
        began = time.perf_counter() - seconds
        for t in range(done, total):
            if not engine.running.any():
                break
            engine.run_round(t)
            due = (t + 1) % scenario.training.eval_every == 0 or t + 1 == total
            if due or (engine.ended & engine.running).any():
                recorder.take_record(t + 1, time.perf_counter() - began)
                following.log_new_records(recorder)
            if checkpoint is not None and (t + 1) % checkpoint.every == 0 and t + 1 < total:
                now = CheckpointState(recorder, t + 1, time.perf_counter() - began)
                checkpoint.save(now, points, numbers)
            if progress is not None:
                progress(t + 1, total)
    record = recorder.record()
    if scenario.output.save_models:
        models = collect(engine, points, numbers, recorder.rounds[-1])
        record = replace(record, models=models)
    return record
