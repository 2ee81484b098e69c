"""No run tracking; the result file has everything in the end."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.tracking.base import Run, Tracker


class Untracked(Tracker):
    """Leave all runs alone."""

    skips_all_runs: ClassVar[bool] = True

    name: Literal["none"] = "none"

    def open_run(self, run: Run) -> None:
        return None
