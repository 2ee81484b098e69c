"""Follow runs by a function of the user's, which the scenario names `module:function`.

    tracker(run, **options) -> context manager of log(round, values)

It is called once for every run, `otafl.tracking.base.Run`, and again when the run is resumed;
options: the other keys of the section. What it returns is entered, and gives a function that is
called at each evaluation with the round and a mapping, name -> finite value; a function alone will
do where there is nothing to close.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from pydantic import ConfigDict

from otafl.core import custom
from otafl.core.errors import UserError
from otafl.core.settings import CustomSettings
from otafl.tracking.base import Log, Run, Tracker


class CustomTracker(CustomSettings, Tracker):
    """Call the user's function for every run."""

    model_config = ConfigDict(extra="allow", frozen=True)

    decides: ClassVar[bool] = False

    def found(self) -> Any:
        return custom.fitting(self.name, "track.name", self.options, "run")

    def ready(self) -> None:
        self.found()

    def opened(self, run: Run) -> AbstractContextManager[Log]:
        made = self.found()(run, **self.options)
        if hasattr(made, "__enter__"):
            return made
        if not callable(made):
            raise UserError(
                f"track.name: '{self.name}' returned {type(made).__name__}; a function of (round, "
                "values) would do, or a context manager that gives one, which "
                "@contextlib.contextmanager makes of a generator"
            )
        return contextlib.nullcontext(made)
