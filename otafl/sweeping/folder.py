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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import DamagedError, UserError, wrap_write_errors
from otafl.core.files import list_numbered, refuse_links, remove_own
from otafl.core.inputs import read_text
from otafl.core.suggestions import format_count
from otafl.results import models as trained
from otafl.results import origins
from otafl.results.files import PACKS, PARTS, list_finished_files, open_part
from otafl.results.origins import Origin
from otafl.results.packing import count_finished_stacks, read_stack_numbers
from otafl.scenario import Scenario, describe_scenario, is_same
from otafl.scenario.yaml_source import parse
from otafl.sweeping import locks
from otafl.sweeping.plan_file import MAX_BYTES
from otafl.sweeping.planning import Batch, Stack
from otafl.user_code.sources import Sources, list_changed

LOCKS, RUNNING, FAILURES = "locks", "running", "failures"
DAMAGED = ".damaged"
"""How the names of damaged files end that were set aside."""
EARLIER, GROWING = "earlier", "growing"
MODELS, TRACK = "models", "track"
WORK = (RUNNING, FAILURES, EARLIER, GROWING)
"""Folders of what a finished sweep needs no more."""


@dataclass(frozen=True)
class Finished:
    """Stacks in a file, and the origin of their points."""

    stacks: frozenset[int]
    origins: tuple[Origin, ...]

    def get_origin(self, stack: Stack) -> Origin:
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
    def scenario_path(self) -> Path:
        """Return the file of the scenario that the plan is of."""
        return self.path / "scenario.yaml"

    def get_part_path(self, number: int) -> Path:
        """Return the file of a finished stack."""
        return self.path / PARTS / f"{number:05d}.nc"

    def get_models_path(self, number: int) -> Path:
        """Return the file of the trained models of a finished stack."""
        return trained.get_models_folder(self.path) / f"{number:05d}.pt"

    def get_earlier_path(self, number: int) -> Path:
        """Return the file of a stack's earlier trials, which are finished."""
        return self.path / EARLIER / f"{number:05d}.nc"

    def get_lock_path(self, what: int | str) -> Path:
        """Return the lock of a stack's number, of the plan, or of packing.

        The program that computes the stack, changes the plan, or packs holds it.
        """
        return self.path / LOCKS / f"{what}.lock"

    def get_failure_path(self, number: int) -> Path:
        """Return the file that says why the stack failed."""
        return self.path / FAILURES / f"{number:05d}.txt"

    def get_checkpoint_path(self, number: int, batch: Batch) -> Path:
        """Return the file of a batch that is running, of a stack that is not finished."""
        return self._get_running_path(number, batch, "checkpoint")

    def get_record_path(self, number: int, batch: Batch) -> Path:
        """Return the file of a finished batch, of a stack that is not finished."""
        return self._get_running_path(number, batch, "record")

    def _get_running_path(self, number: int, batch: Batch, what: str) -> Path:
        name = f"{number:05d}-{batch.points[0]}-{batch.trials[0]}-{batch.num_rows}.{what}.pt"
        return self.path / RUNNING / name

    def refuse_links(self) -> None:
        """Raise UserError if one of the folder's own folders is a link; the folder may be one."""
        names = (LOCKS, *WORK, PARTS, PACKS, MODELS, TRACK)
        refuse_links(*(self.path / name for name in names))

    @property
    def interrupted_path(self) -> Path:
        """Return the file of what there was of the stack that ran at Ctrl-C."""
        return self.path / "interrupted.nc"

    def find_finished(self, scenario: Scenario) -> dict[Path, Finished]:
        """Return the contents of the files whose results are whole and belong to this scenario.

        Damaged ones are computed again.
        """
        paths = list_finished_files(self.path)
        wanted = describe_scenario(scenario) if paths else {}
        held = {path: _read_finished(path, wanted) for path in paths}
        return {path: one for path, one in held.items() if one.stacks}

    def set_aside_damaged(self) -> dict[Path, str]:
        """Rename the finished files that are damaged, which readers of the folder then pass over.

        Returns
        -------
        The new path of each, and the sentence that says what is wrong with it.
        """
        found = {}
        for path in list_finished_files(self.path):
            try:
                _read_header(path)
            except DamagedError as error:
                aside = path.with_name(f"{path.name}{DAMAGED}")
                with (
                    wrap_write_errors(path),
                    contextlib.suppress(FileNotFoundError),
                ):  # another was first
                    path.replace(aside)
                found[aside] = f"{path}: is damaged ({error.reason})"
            except UserError:
                pass  # of a later otafl, say
        return found

    def has(self, stack: Stack, scenario: Scenario, sources: Sources) -> bool:
        """Return whether the stack's results, computed by these sources, are there.

        They are in its own file, or in one that another program has packed it into.
        """
        part, packs = self.get_part_path(stack.number), list_finished_files(self.path, of_one=False)
        if not part.exists() and not packs:
            return False
        wanted = describe_scenario(scenario)
        own = _read_finished(part, wanted)
        held = itertools.chain([own], (_read_finished(path, wanted) for path in packs))
        return any(
            stack.number in one.stacks and not list_outdated(one.get_origin(stack), sources)
            for one in held
        )

    def list_unfinished(self, number: int) -> list[Path]:
        """List the files of a stack that is begun: checkpoints, batches and earlier trials."""
        running = (self.path / RUNNING).glob(f"{number:05d}-*.pt")
        return [*running, *(self.path / EARLIER).glob(f"{number:05d}.*")]

    def forget(self, number: int) -> None:
        """Remove the temporary files of a finished stack."""
        for path in (self.get_failure_path(number), *self.list_unfinished(number)):
            with contextlib.suppress(OSError):
                path.unlink()

    def prepare(self, scenario: Scenario, restart: bool = False) -> str:
        """Empty the folder of what is in the scenario's way, and return what was thrown away.

        A folder without results belongs to no scenario. With `restart` its contents go too. Raises
        UserError if it holds results of another scenario, or another program computes there.
        """
        with locks.hold_lock(self.get_lock_path("plan")):
            if restart:
                with wrap_write_errors(self.path):
                    remove_own(self.path / GROWING)
            if not self.plan.exists() or self.plan.is_dir():
                return ""
            if not restart and self.holds_scenario(scenario):
                return ""
            kept = self.describe()
            if kept and not restart:
                raise UserError(
                    f"{self.path}: holds {kept}, not of this one (or of this one before it was "
                    "changed: only more values on its axes and more trials continue from there); "
                    "throw that away with --restart, or give another place with --out"
                )
            self.check_idle()
            self._clear()
        return kept

    def describe(self) -> str:
        """Describe the part of a scenario in the folder; empty without any results."""
        parts, more = count_finished_stacks(self.path), []
        if any((self.path / RUNNING).glob("*.checkpoint*")):
            more.append("checkpoints of what was running")
        if any((self.path / RUNNING).glob("*.record*")):
            more.append("finished batches of what was running")
        if list_numbered(self.path / EARLIER, ".nc"):
            more.append("earlier trials of stacks that get more")
        if self.interrupted_path.exists():
            more.append("the records of an interrupted one")
        if not parts and not more:
            return ""
        held = ", ".join([format_count(parts, "finished part"), *more])
        return f"{held} of {self._name()}"

    def _name(self) -> str:
        """Name the scenario of the plan, without loading it: it may name untrusted code."""
        try:
            return f"the scenario '{parse(read_text(self.scenario_path, MAX_BYTES)).data['name']}'"
        except (OSError, ValueError, UserError, KeyError, TypeError):
            return "a scenario"

    def read_stored(self) -> dict[str, Any]:
        """Return the content of the plan, and its scenario, see `scenario.about`.

        Raises OSError, ValueError or TypeError if they cannot be read.
        """
        plan = json.loads(read_text(self.plan, MAX_BYTES))
        return {**plan, "scenario": read_text(self.scenario_path, MAX_BYTES)}

    def holds_scenario(self, scenario: Scenario) -> bool:
        """Return whether the folder's plan is of this scenario; a damaged one is not."""
        try:
            return is_same(self.read_stored(), describe_scenario(scenario))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False

    def check_idle(self) -> None:
        """Raise UserError if another program computes a stack of the folder, or packs it."""
        for path in (self.path / LOCKS).glob("*.lock"):
            if path == self.get_lock_path("plan"):
                continue
            try:
                with locks.hold_lock(path, wait=False):
                    pass
            except locks.Busy:
                raise UserError(
                    f"{self.path}: another program computes there; wait for it, or give another "
                    "place with --out"
                ) from None

    def _clear(self) -> None:
        """Remove what sweeps keep, and nothing else; the plan last."""
        with wrap_write_errors(self.path):
            for name in (*WORK, PARTS, PACKS, MODELS):
                remove_own(self.path / name)
            for file in (self.interrupted_path, self.scenario_path, self.plan):
                file.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a finished sweep needs no more."""
        with contextlib.suppress(OSError):
            self.interrupted_path.unlink()
        for name in (LOCKS, *WORK):
            with contextlib.suppress(OSError):
                remove_own(self.path / name)


def list_outdated(origin: Origin, sources: Sources) -> list[str]:
    """List the user-defined files that have changed since something was computed.

    A file without a recorded hash counts as changed.
    """
    return list_changed(origin.sources or {}, sources)


def _read_finished(path: Path, expected: Mapping[str, str]) -> Finished:
    """Return what is in a file, if it is of this scenario and complete."""
    nothing = Finished(frozenset(), ())
    try:
        attributes, points = _read_header(path)
        if attributes["complete"] != 1 or not is_same(attributes, expected):
            return nothing
        made = origins.read(attributes, points)
        return Finished(frozenset(read_stack_numbers(path, attributes)), tuple(made))
    except (UserError, KeyError, TypeError, ValueError):  # an attribute is missing, or no number
        return nothing


def _read_header(path: Path) -> tuple[Mapping[str, Any], np.ndarray]:
    """Return the attributes of a file and the indices of its points; raise what `open_part` does.

    A resumed sweep asks several times, so that only a file that has changed is read again.
    """
    try:
        found = path.stat()
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
    except OSError:
        stamp = None
    return _read_header_at(path, stamp)


@functools.lru_cache(maxsize=256)
def _read_header_at(path: Path, stamp: object) -> tuple[Mapping[str, Any], np.ndarray]:
    with open_part(path) as part:
        return part.attrs, part["point_index"].values
