"""Trackers: none, lines of JSON, and TensorBoard's event files."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from otafl.core.errors import UserError
from otafl.tracking.base import Log, Run, Tracker

EVENTS_FILE = "events.out.tfevents.otafl"
"""TensorBoard reads files whose names have `tfevents` in them."""


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
