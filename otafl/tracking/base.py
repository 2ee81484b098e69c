"""Contract of a tracker, and the description of a run that it receives."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from otafl.core.files import refuse_links
from otafl.core.settings import Settings

Log = Callable[[int, Mapping[str, float]], None]
"""Called at each evaluation with the round and what was measured: name -> finite value."""

MAX_LETTERS = 80
"""A point's folder, which is named after its coordinates, has no longer name."""


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
