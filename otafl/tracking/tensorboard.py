"""Write TensorBoard's event files, a run a trial: `tensorboard --logdir` draws what was measured.

It needs the package tensorboard, `pip install 'otafl[tracking]'`.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from otafl.core.errors import UserError
from otafl.tracking.base import Log, Run, Tracker

FILE = "events.out.tfevents.otafl"
"""TensorBoard reads files whose names have `tfevents` in them."""


class TensorBoard(Tracker):
    """Write `<point>/trial_<number>/events.out.tfevents.otafl`, a scalar a variable."""

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

        path = run.folder / run.name / FILE
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
