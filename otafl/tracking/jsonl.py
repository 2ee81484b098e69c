"""Write a line of JSON for each evaluation of a trial, into a file a trial.

A line has the point's coordinates, `trial`, `round` and what was measured; what has no finite value
is left out. `pandas.read_json(file, lines=True)` reads a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from otafl.tracking.base import Log, Run, Tracker


class JsonLines(Tracker):
    """Write `<point>/trial_<number>.jsonl`."""

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
