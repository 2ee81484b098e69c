"""Name what is in the folder of a sweep.

plan.json, scenario.yaml      what runs
parts/00003.nc                a finished stack (parts/00003.nc.damaged: set aside)
packs/1-00000.nc              many of them in one file
models/00003.pt               its trained models, with `output.save_models`
earlier/00003.nc, 00003.pt    finished trials of a stack that gets more, see `growing`
growing/                      files of a grown sweep that are not in their places yet
running/00003-...             checkpoints and finished batches of a stack that is running
locks/                        who is at what, see `locks`
failures/00003.txt            why a stack failed
interrupted.nc                what there was of a stack at Ctrl-C
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otafl.core.errors import DamagedError, UserError, changing
from otafl.core.inputs import read_text
from otafl.core.words import counted
from otafl.results import models as trained
from otafl.results import origins
from otafl.results.files import PARTS, finished_files, open_part
from otafl.results.origins import Origin
from otafl.results.packing import finished_stacks, stacks_of
from otafl.scenario import Scenario, about, same
from otafl.scenario.yaml_source import parse
from otafl.sweeping import locks
from otafl.sweeping.plan_file import MOST_BYTES
from otafl.sweeping.planning import Batch, Stack
from otafl.user_code.sources import Sources, changed

LOCKS, RUNNING, FAILURES, OLD_STATE = "locks", "running", "failures", "state"
DAMAGED = ".damaged"
"""How the names of damaged files end that were set aside."""
EARLIER, GROWING = "earlier", "growing"


@dataclass(frozen=True)
class Finished:
    """Stacks in a file, and the origin of their points."""

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

    @property
    def plan(self) -> Path:
        """Return the file of the plan."""
        return self.path / "plan.json"

    @property
    def scenario(self) -> Path:
        """Return the file of the scenario that the plan is of."""
        return self.path / "scenario.yaml"

    def part(self, number: int) -> Path:
        """Return the file of a finished stack."""
        return self.path / PARTS / f"{number:05d}.nc"

    def models(self, number: int) -> Path:
        """Return the file of the trained models of a finished stack."""
        return trained.folder_of(self.path) / f"{number:05d}.pt"

    def earlier(self, number: int) -> Path:
        """Return the file of a stack's earlier trials, which are finished."""
        return self.path / EARLIER / f"{number:05d}.nc"

    def lock(self, what: int | str) -> Path:
        """Return the lock of a stack's number, of the plan, or of packing.

        The program that computes the stack, changes the plan, or packs holds it.
        """
        return self.path / LOCKS / f"{what}.lock"

    def failure(self, number: int) -> Path:
        """Return the file that says why the stack failed."""
        return self.path / FAILURES / f"{number:05d}.txt"

    def checkpoint(self, number: int, batch: Batch) -> Path:
        """Return the file of a batch that is running, of a stack that is not finished."""
        return self._running(number, batch, "checkpoint")

    def record(self, number: int, batch: Batch) -> Path:
        """Return the file of a finished batch, of a stack that is not finished."""
        return self._running(number, batch, "record")

    def _running(self, number: int, batch: Batch, what: str) -> Path:
        name = f"{number:05d}-{batch.points[0]}-{batch.trials[0]}-{batch.size}.{what}.pt"
        return self.path / RUNNING / name

    def old_state(self) -> list[Path]:
        """List the states of unfinished stacks that earlier versions saved.

        They are pickles, which are never read.
        """
        running = self.path / RUNNING
        found = (self.path.glob(f"{OLD_STATE}/*"), *map(running.glob, ("*.checkpoint", "*.record")))
        return sorted(path for paths in found for path in paths)

    @property
    def interrupted(self) -> Path:
        """Return the file of what there was of the stack that ran at Ctrl-C."""
        return self.path / "interrupted.nc"

    def finished(self, scenario: Scenario) -> dict[Path, Finished]:
        """Return the contents of the files whose results are whole and belong to this scenario.

        Damaged ones are computed again.
        """
        paths = finished_files(self.path)
        wanted = about(scenario) if paths else {}
        held = {path: _held(path, wanted) for path in paths}
        return {path: one for path, one in held.items() if one.stacks}

    def set_aside_damaged(self) -> dict[Path, str]:
        """Rename the finished files that are damaged, which readers of the folder then pass over.

        Returns
        -------
        The new path of each, and the sentence that says what is wrong with it.
        """
        found = {}
        for path in finished_files(self.path):
            try:
                open_part(path).close()
            except DamagedError as error:
                aside = path.with_name(f"{path.name}{DAMAGED}")
                with changing(path), contextlib.suppress(FileNotFoundError):  # another was first
                    path.replace(aside)
                found[aside] = f"{path}: is damaged ({error.why})"
            except UserError:
                pass  # of a later otafl, say
        return found

    def has(self, stack: Stack, scenario: Scenario, sources: Sources) -> bool:
        """Return whether the stack's results, computed by these sources, are there.

        They are in its own file, or in one that another program has packed it into.
        """
        part, packs = self.part(stack.number), finished_files(self.path, of_one=False)
        if not part.exists() and not packs:
            return False
        wanted = about(scenario)
        own = _held(part, wanted)
        held = itertools.chain([own], (_packed(path, *wanted.values()) for path in packs))
        return any(
            stack.number in one.stacks and not outdated(one.origin(stack), sources) for one in held
        )

    def forget(self, number: int) -> bool:
        """Remove the temporary files of a finished stack, or of one that begins again.

        Return whether it was unfinished.
        """
        running = list((self.path / RUNNING).glob(f"{number:05d}-*"))
        running += (self.path / EARLIER).glob(f"{number:05d}.*")
        for path in (self.failure(number), *running):
            with contextlib.suppress(OSError):
                path.unlink()
        return bool(running)

    def made_ready(self, scenario: Scenario, restart: bool = False) -> str:
        """Empty the folder of what is in the scenario's way, and return what was thrown away.

        A folder without results belongs to no scenario. With `restart` its contents go too. Raises
        UserError if it holds results of another scenario, or another program computes there.
        """
        with locks.held(self.lock("plan")):
            if restart:
                shutil.rmtree(self.path / GROWING, ignore_errors=True)
            if not self.plan.exists() or self.plan.is_dir():
                return ""
            if not restart and self.is_of(scenario):
                return ""
            kept = self.said()
            if kept and not restart:
                raise UserError(
                    f"{self.path}: holds {kept}, not of this one (or of this one before it was "
                    "changed: only more values on its axes and more trials continue from there); "
                    "throw that away with --restart, or give another place with --out"
                )
            self.check_idle()
            self._clear()
        return kept

    def said(self) -> str:
        """Say what of a scenario the folder holds; empty without any results."""
        parts, more = finished_stacks(self.path), []
        if any((self.path / RUNNING).glob("*.checkpoint*")):
            more.append("checkpoints of what was running")
        if any((self.path / RUNNING).glob("*.record*")):
            more.append("finished batches of what was running")
        if any((self.path / EARLIER).glob("*.nc")):
            more.append("earlier trials of stacks that get more")
        if self.interrupted.exists():
            more.append("the records of an interrupted one")
        if not parts and not more:
            return ""
        held = ", ".join([counted(parts, "finished part"), *more])
        return f"{held} of {self._name()}"

    def _name(self) -> str:
        """Name the scenario of the plan, without loading it: it may name untrusted code."""
        try:
            return f"the scenario '{parse(read_text(self.scenario, MOST_BYTES)).data['name']}'"
        except (OSError, ValueError, UserError, KeyError, TypeError):
            return "a scenario"

    def stored(self) -> dict[str, Any]:
        """Return the content of the plan, and its scenario, see `scenario.about`.

        Raises OSError, ValueError or TypeError if they cannot be read.
        """
        plan = json.loads(read_text(self.plan, MOST_BYTES))
        return {**plan, "scenario": read_text(self.scenario, MOST_BYTES)}

    def is_of(self, scenario: Scenario) -> bool:
        """Return whether the folder's plan is of this scenario; a damaged one is not."""
        try:
            return same(self.stored(), about(scenario))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False

    def check_idle(self) -> None:
        """Raise UserError if another program computes a stack of the folder, or packs it."""
        for path in (self.path / LOCKS).glob("*.lock"):
            if path == self.lock("plan"):
                continue
            try:
                with locks.held(path, wait=False):
                    pass
            except locks.Busy:
                raise UserError(
                    f"{self.path}: another program computes there; wait for it, or give another "
                    "place with --out"
                ) from None

    def _clear(self) -> None:
        """Remove what sweeps keep, and nothing else; the plan last."""
        for name in (RUNNING, FAILURES, OLD_STATE, EARLIER, GROWING):
            shutil.rmtree(self.path / name, ignore_errors=True)
        models, aside = trained.files_of(self.path), self.path.glob(f"*/*.nc{DAMAGED}")
        with changing(self.path):
            for file in (*finished_files(self.path), *aside, *models, self.interrupted):
                file.unlink(missing_ok=True)
            self.scenario.unlink(missing_ok=True)
            self.plan.unlink()

    def tidy(self) -> None:
        """Remove what a finished sweep needs no more."""
        with contextlib.suppress(OSError):
            self.interrupted.unlink()
        for name in (LOCKS, RUNNING, FAILURES, OLD_STATE, EARLIER):
            shutil.rmtree(self.path / name, ignore_errors=True)


def outdated(origin: Origin, sources: Sources) -> list[str]:
    """List the user-defined files that have changed since something was computed.

    A file without a recorded hash counts as changed.
    """
    return changed(origin.sources or {}, sources)


@functools.cache
def _packed(path: Path, text: str, digest: str) -> Finished:
    """Return what is in a pack, which does not change."""
    return _held(path, {"scenario": text, "scenario_hash": digest})


def _held(path: Path, wanted: Mapping[str, str]) -> Finished:
    """Return what is in a file, if it is of this scenario and complete."""
    nothing = Finished(frozenset(), ())
    try:
        with open_part(path) as part:
            attributes, points = part.attrs, part["point_index"].values
        if attributes["complete"] != 1 or not same(attributes, wanted):
            return nothing
        made = origins.read(attributes, points)
        return Finished(frozenset(stacks_of(path, attributes)), tuple(made))
    except (UserError, KeyError, TypeError, ValueError):  # an attribute is missing, or no number
        return nothing
