"""Run tracking by a user-defined function, which the scenario names `module:function`.

    tracker(run, **options) -> context manager of log(round, values)

It is called once for every run, `otafl.tracking.trackers.Run`, and again when the run is resumed;
options: the other keys of the section. What it returns is entered, and gives a function that is
called at each evaluation with the round and a mapping, name -> finite value; a function alone will
do where there is nothing to close.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import ClassVar

from pydantic import ConfigDict

from otafl.tracking.trackers import Log, Run, Tracker
from otafl.user_code.custom_part import CustomFunction


class CustomTracker(CustomFunction, Tracker):
    """Call the user's function for every run."""

    model_config = ConfigDict(extra="allow", frozen=True)

    table: ClassVar = "track"
    positional_names: ClassVar = ("run",)
    affects_results: ClassVar[bool] = False

    def check_ready(self) -> None:
        self.find_function()

    def open_run(self, run: Run) -> AbstractContextManager[Log]:
        made = self.call(run)
        if hasattr(made, "__enter__"):
            return made
        if not callable(made):
            self.refuse(
                f"returned {type(made).__name__}; expected a function of (round, values), or a "
                "context manager that yields one (see @contextlib.contextmanager)"
            )
        return contextlib.nullcontext(made)
