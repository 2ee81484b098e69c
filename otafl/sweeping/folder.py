"""Name what is in the folder of a sweep.

plan.json, scenario.yaml      what runs
parts/00003.nc                a finished stack
packs/1-00000.nc              many of them in one file
models/00003.pt               its trained models, with `output.save_models`
running/00003-...             checkpoints and finished batches of a stack that is running
locks/                        who is at what, see `locks`
failures/00003.txt            why a stack failed
interrupted.nc                what there was of a stack at Ctrl-C
"""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from otafl.core.errors import UserError
from otafl.results import models as trained
from otafl.results.files import finished_files, read_part
from otafl.results.packing import stacks_of
from otafl.scenario import Scenario, about, same
from otafl.sweeping.planning import Batch

OLD_STATE = "state"


@dataclass(frozen=True)
class Folder:
    """Name the files in the folder of a sweep."""

    path: Path

    def part(self, number: int) -> Path:
        """Return the file of a finished stack."""
        return self.path / "parts" / f"{number:05d}.nc"

    def models(self, number: int) -> Path:
        """Return the file of the trained models of a finished stack."""
        return trained.folder_of(self.path) / f"{number:05d}.pt"

    def lock(self, what: int | str) -> Path:
        """Return the lock held by the program that computes the stack of this number, changes the
        plan, or packs."""
        return self.path / "locks" / f"{what}.lock"

    def failure(self, number: int) -> Path:
        """Return the file that says why the stack failed."""
        return self.path / "failures" / f"{number:05d}.txt"

    def state(self, number: int, batch: Batch) -> Path:
        """Return where a batch of a stack that is not finished is kept; suffixes say what is."""
        name = f"{number:05d}-{batch.points[0]}-{batch.trials[0]}-{batch.size}"
        return self.path / "running" / name

    def old_state(self) -> list[Path]:
        """List what an otafl before `running/` kept of stacks that were not finished: pickles,
        which are never read."""
        return sorted((self.path / OLD_STATE).glob("*"))

    @property
    def interrupted(self) -> Path:
        """Return the file of what there was of the stack that ran at Ctrl-C."""
        return self.path / "interrupted.nc"

    def finished(self, scenario: Scenario) -> set[int]:
        """Return the stacks whose results are there, whole and this scenario's; damaged ones are
        computed anew."""
        wanted = about(scenario)
        return set().union(*(_whole(path, wanted) for path in finished_files(self.path)))

    def has(self, number: int, scenario: Scenario) -> bool:
        """Say whether the stack's results are there: in its own file, or in one that another
        program has packed it into."""
        wanted = about(scenario)
        if number in _whole(self.part(number), wanted):
            return True
        packs = finished_files(self.path, of_one=False)
        return any(number in _packed(path, *wanted.values()) for path in packs)

    def forget(self, number: int) -> None:
        """Remove what a finished stack needs no more."""
        old = [self.failure(number), *(self.path / "running").glob(f"{number:05d}-*")]
        for path in old:
            with contextlib.suppress(OSError):
                path.unlink()

    def tidy(self) -> None:
        """Remove what a finished sweep needs no more."""
        self.interrupted.unlink(missing_ok=True)
        for name in ("locks", "running", "failures", OLD_STATE):
            shutil.rmtree(self.path / name, ignore_errors=True)


@functools.cache
def _packed(path: Path, text: str, digest: str) -> set[int]:
    """Return the stacks of a pack, which does not change."""
    return _whole(path, {"scenario": text, "scenario_hash": digest})


def _whole(path: Path, wanted: Mapping[str, str]) -> set[int]:
    """Return the stacks of a file, if it is of this scenario and complete."""
    try:
        with read_part(path, lazy=True) as part:
            attributes = part.attrs
    except UserError:
        return set()
    whole = attributes["complete"] == 1 and same(attributes, wanted)
    return stacks_of(path, attributes) if whole else set()
