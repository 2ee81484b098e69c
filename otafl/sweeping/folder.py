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
import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from otafl.core.errors import UserError
from otafl.core.sources import Sources, changed
from otafl.results import models as trained
from otafl.results import origins
from otafl.results.files import finished_files, read_part
from otafl.results.origins import Origin
from otafl.results.packing import stacks_of
from otafl.scenario import Scenario, about, same
from otafl.sweeping.planning import Batch, Stack

OLD_STATE = "state"


@dataclass(frozen=True)
class Finished:
    """Hold which stacks are in a file, and what their points were computed by."""

    stacks: frozenset[int]
    origins: tuple[Origin, ...]

    def origin(self, stack: Stack) -> Origin:
        """Return what a stack of the file was computed by."""
        first = stack.points[0].index
        unknown = Origin(frozenset(), {}, None)
        return next((one for one in self.origins if first in one.points), unknown)


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

    def checkpoint(self, number: int, batch: Batch) -> Path:
        """Return the file of a batch that is running, of a stack that is not finished."""
        return self._running(number, batch, "checkpoint")

    def record(self, number: int, batch: Batch) -> Path:
        """Return the file of a finished batch, of a stack that is not finished."""
        return self._running(number, batch, "record")

    def _running(self, number: int, batch: Batch, what: str) -> Path:
        name = f"{number:05d}-{batch.points[0]}-{batch.trials[0]}-{batch.size}.{what}.pt"
        return self.path / "running" / name

    def old_state(self) -> list[Path]:
        """List what earlier versions kept of stacks that were not finished: pickles, which are
        never read."""
        running = self.path / "running"
        found = (self.path.glob(f"{OLD_STATE}/*"), *map(running.glob, ("*.checkpoint", "*.record")))
        return sorted(path for paths in found for path in paths)

    @property
    def interrupted(self) -> Path:
        """Return the file of what there was of the stack that ran at Ctrl-C."""
        return self.path / "interrupted.nc"

    def finished(self, scenario: Scenario) -> dict[Path, Finished]:
        """Return what the files hold whose results are whole and this scenario's; damaged ones are
        computed anew."""
        wanted = about(scenario)
        held = {path: _held(path, wanted) for path in finished_files(self.path)}
        return {path: one for path, one in held.items() if one.stacks}

    def has(self, stack: Stack, scenario: Scenario, sources: Sources) -> bool:
        """Say whether the stack's results, made by these sources, are there: in its own file, or
        in one that another program has packed it into."""
        wanted = about(scenario)
        packs = finished_files(self.path, of_one=False)
        own = _held(self.part(stack.number), wanted)
        held = itertools.chain([own], (_packed(path, *wanted.values()) for path in packs))
        return any(
            stack.number in one.stacks and not outdated(one.origin(stack), sources) for one in held
        )

    def forget(self, number: int) -> bool:
        """Remove what a finished stack needs no more, or one that begins anew; return whether it
        was in the middle."""
        running = list((self.path / "running").glob(f"{number:05d}-*"))
        for path in (self.failure(number), *running):
            with contextlib.suppress(OSError):
                path.unlink()
        return bool(running)

    def restart(self) -> None:
        """Remove all that was computed."""
        self.tidy()
        trained_models = trained.folder_of(self.path)
        for folder in (self.path / "parts", self.path / "packs", trained_models):
            shutil.rmtree(folder, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a finished sweep needs no more."""
        self.interrupted.unlink(missing_ok=True)
        for name in ("locks", "running", "failures", OLD_STATE):
            shutil.rmtree(self.path / name, ignore_errors=True)


def outdated(origin: Origin, sources: Sources) -> list[str]:
    """List the files of the user's own that have changed since something was computed, or of which
    it does not say what they were."""
    return changed(origin.sources or {}, sources)


@functools.cache
def _packed(path: Path, text: str, digest: str) -> Finished:
    """Return what is in a pack, which does not change."""
    return _held(path, {"scenario": text, "scenario_hash": digest})


def _held(path: Path, wanted: Mapping[str, str]) -> Finished:
    """Return what is in a file, if it is of this scenario and complete."""
    nothing = Finished(frozenset(), ())
    try:
        with read_part(path, lazy=True) as part:
            attributes, points = part.attrs, part["point_index"].values
    except UserError:
        return nothing
    if attributes["complete"] != 1 or not same(attributes, wanted):
        return nothing
    made = origins.read(attributes, points)
    return Finished(frozenset(stacks_of(path, attributes)), tuple(made))
