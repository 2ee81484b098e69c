"""Run tracking: the tracker of every run receives its records.

A run is a trial of a point. The tracker receives trials one by one and not as a mean, because those
of a point may run in several batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import UserError
from otafl.evaluation.recorder import Recorder
from otafl.results.end_values import SUMS
from otafl.results.variables import LEVELS, get_variable
from otafl.scenario import Point, compute_scenario_hash
from otafl.tracking.base import Log, Run, Tracker


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
            for row, run in enumerate(_list_runs(points, trials, tracks.folder)):
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


def _list_runs(points: Sequence[Point], trials: Sequence[int], folder: Path) -> list[Run]:
    """List the runs of a stack, in the order of its rows."""
    out = []
    for point in points:
        plain = point.scenario.model_dump(mode="json", exclude={"sweep"})
        about = (plain, compute_scenario_hash(point.scenario))
        out += [Run(folder, point.index, point.coords, trial, *about) for trial in trials]
    return out


def _format_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
