"""Contract of trackers, and trackers: none, lines of JSON, and TensorBoard's event files."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from otafl.core.errors import UserError
from otafl.core.files import refuse_links
from otafl.core.settings import Settings

Log = Callable[[int, Mapping[str, float]], None]
"""Function called at each evaluation with the round and the measured values, name -> number."""

MAX_LETTERS = 80
"""A point's folder, which is named after its coordinates, has no longer name."""

EVENTS_FILE = "events.out.tfevents.otafl"
"""TensorBoard reads files whose names have `tfevents` in them."""


@dataclass(frozen=True)
class Run:
    """One tracked run: a trial of a point of the sweep.

    Parameters
    ----------
    folder : of all runs of the scenario. Trackers make it as they need it.
    point : place of the point in the sweep.
    coords : its coordinates, name -> value; none without a sweep.
    trial : number of the trial.
    scenario : of the point, as plain data with all defaults filled in.
    scenario_hash : of all that the numbers depend on.
    """

    folder: Path
    point: int
    coords: Mapping[str, Any]
    trial: int
    scenario: Mapping[str, Any]
    scenario_hash: str

    @property
    def group(self) -> str:
        """Name the point, as a folder could be named: `3_snr_db=10`; empty without a sweep."""
        if not self.coords:
            return ""
        said = "_".join(f"{name}={value}" for name, value in self.coords.items())
        plain = re.sub(r"[^\w.=+-]+", "_", said)
        return f"{self.point}_{plain}"[:MAX_LETTERS]

    @property
    def name(self) -> str:
        """Name the run, as a path below the folder could be named: `3_snr_db=10/trial_0`."""
        return f"{self.group}/trial_{self.trial}".removeprefix("/")

    @property
    def id(self) -> str:
        """Return the run's identifier of 16 letters and digits.

        It is the same when the run is resumed, and differs for another scenario, run or folder.
        """
        said = f"{self.folder.absolute()}:{self.name}:{self.scenario_hash}"
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def create_file(self, path: Path) -> None:
        """Create an empty file below the folder, in place of any file or link of that name."""
        refuse_links(*(one for one in path.parents if one.is_relative_to(self.folder)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch(exist_ok=False)


class Tracker(Settings):
    """Follow runs. A tracker is its settings, the section `track` of a scenario.

    Numbers do not depend on it, nor does what a resumed run takes up.
    """

    skips_all_runs: ClassVar[bool] = False
    """Whether `open_run` always returns None, so that no run needs a description."""

    name: str

    def check_ready(self) -> None:
        """Raise UserError where runs cannot be followed on this machine."""

    @abstractmethod
    def open_run(self, run: Run) -> AbstractContextManager[Log] | None:
        """Begin to track a run, or return None to skip it.

        A run that is resumed begins again: it receives all evaluations from round 0, the
        earlier ones first. What is kept of it must be replaced, or rounds left out that are there.
        """


class Untracked(Tracker):
    """No run tracking; the result file has everything in the end."""

    skips_all_runs: ClassVar[bool] = True

    name: Literal["none"] = "none"

    def open_run(self, run: Run) -> None:
        return None


class JsonLines(Tracker):
    """Write a line of JSON for each evaluation of a trial, into a file a trial.

    The file is `<point>/trial_<number>.jsonl`. A line has the point's coordinates, `trial`, `round`
    and what was measured; what has no finite value is left out. `pandas.read_json(file,
    lines=True)` reads a file.
    """

    name: Literal["jsonl"] = "jsonl"

    @contextmanager
    def open_run(self, run: Run) -> Iterator[Log]:
        path = run.folder / f"{run.name}.jsonl"
        run.create_file(path)

        def log(round: int, values: Mapping[str, float]) -> None:
            line: dict[str, Any] = {**run.coords, "trial": run.trial, "round": round, **values}
            with path.open("a") as file:  # a stack may have more runs than files can be open
                file.write(f"{json.dumps(line, default=str)}\n")

        yield log


class TensorBoard(Tracker):
    """Write TensorBoard's event files, a run a trial.

    `tensorboard --logdir` draws what was measured. The file is
    `<point>/trial_<number>/events.out.tfevents.otafl`, with a scalar a variable. It needs the
    package tensorboard, `pip install 'otafl[tracking]'`.
    """

    name: Literal["tensorboard"] = "tensorboard"

    def check_ready(self) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise UserError(
                "track: tensorboard is not installed; run pip install 'otafl[tracking]', or "
                "set track: jsonl"
            )

    @contextmanager
    def open_run(self, run: Run) -> Iterator[Log]:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        path = run.folder / run.name / EVENTS_FILE
        run.create_file(path)

        def write(**fields: Any) -> None:
            # TensorBoard's own writers keep a thread and an open file each: too many for a stack
            with path.open("ab") as file:
                event = Event(wall_time=time.time(), **fields)
                RecordWriter(file).write(event.SerializeToString())

        def log(round: int, values: Mapping[str, float]) -> None:
            scalars = [Summary.Value(tag=tag, simple_value=one) for tag, one in values.items()]
            write(step=round, summary=Summary(value=scalars))

        write(file_version="brain.Event:2")
        yield log
