"""The folder of a sweep, in which every finished stack is a file.

sweep.json                    what the folder is of
sizes.json                    trials at once, where the memory was too short for more
parts/0123456789abcdef.nc     a finished stack (.damaged: set aside)
models/0123456789abcdef.pt    its trained models, with `output.save_models`
running/0123456789abcdef.pt   the last checkpoint of a stack
failures/0123456789abcdef.txt why a stack failed
locks/                        who is at what, see `hold_lock`
track/                        what a tracker writes

Beside each file of numbers is its SHA-256, see `otafl.core.checksums`.

Several programs may work on one folder. The system frees a lock with the program that holds it,
however that ends. Where a file system knows no locks, the work is done without: files are replaced
as a whole, so the worst is that two programs compute the same.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xarray as xr
from filelock import FileLock, Timeout
from pydantic import PositiveInt, TypeAdapter

from otafl.core import checksums
from otafl.core.checksums import format_reason
from otafl.core.errors import DamagedError, UserError, WriteError, wrap_write_errors
from otafl.core.files import MIB, list_own, read_text, refuse_links, remove_own, write_text
from otafl.core.suggestions import format_count
from otafl.results import models as trained
from otafl.results.files import (
    PARTS,
    SWEEP_FILE,
    SweepFile,
    list_parts,
    open_part,
    open_sweep,
    read_sweep_file,
    write_sweep_file,
)
from otafl.sweeping.planning import Row, Stack
from otafl.user_code.sources import list_changed

LOCKS, RUNNING, FAILURES, MODELS, TRACK = "locks", "running", "failures", "models", "track"
WORK = (RUNNING, FAILURES)
"""Folders of what a finished sweep needs no more."""
SUFFIXES = {PARTS: ".nc", MODELS: ".pt", RUNNING: ".pt", FAILURES: ".txt"}
"""Folder -> how the names of its files end."""
DAMAGED = ".damaged"
"""How the names of damaged files end that were set aside."""

_SIZES = TypeAdapter(dict[str, PositiveInt])


class Busy(Exception):
    """Lock that another program holds."""


@contextlib.contextmanager
def hold_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Lock a file, which may be left behind, while a `with` statement runs.

    Raises Busy if it is taken and `wait` is False, WriteError if its folder cannot be written.
    """
    lock = FileLock(path)
    try:
        os.fspath(path).encode()
        while not lock.is_locked:  # a program that finds the sweep finished removes the folder
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise Busy from None
    except NotImplementedError:
        yield
        return
    except UnicodeEncodeError as error:  # said before anything is computed
        raise WriteError(
            f"{path.parent}: cannot be written, since NetCDF files need names in UTF-8; try --out"
        ) from error
    except OSError as error:
        raise WriteError(
            f"{path.parent}: cannot be written ({error.strerror}); try --out"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def hold_folder(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder for this program while a `with` statement runs.

    what: is made there, for the message. Raises UserError if another program holds it.
    """
    try:
        with hold_lock(folder / "run.lock", wait=False):
            yield
    except Busy:
        raise UserError(
            f"{what}: another `otafl run` makes it; wait for it, or give another place with --out"
        ) from None


@dataclass(frozen=True)
class Store:
    """Files in the folder of a sweep."""

    path: Path

    def get_path(self, kind: str, stack: str) -> Path:
        """Return the file of a stack in one of the folders of `SUFFIXES`."""
        return self.path / kind / f"{stack}{SUFFIXES[kind]}"

    @property
    def sizes_path(self) -> Path:
        """Return the file of the trials at once, where the memory was too short for more."""
        return self.path / "sizes.json"

    @contextlib.contextmanager
    def lock(self, what: str = "sweep", wait: bool = True) -> Iterator[None]:
        """Lock a stack, or what the folder is of. Raises as `hold_lock`."""
        with hold_lock(self.path / LOCKS / f"{what}.lock", wait):
            yield

    def refuse_links(self) -> None:
        """Raise UserError if one of the folder's own folders is a link; the folder may be one."""
        refuse_links(*(self.path / name for name in (LOCKS, *WORK, PARTS, MODELS, TRACK)))

    def read(self) -> SweepFile | None:
        """Return what the folder is of; None for a new one. Raises DamagedError."""
        return read_sweep_file(self.path) if (self.path / SWEEP_FILE).exists() else None

    def begin(self, sweep: SweepFile) -> None:
        """Make the folder one of this sweep.

        A folder without results belongs to no sweep, and a sweep may grow by points and trials.
        Raises UserError if it holds results of another sweep.
        """
        with self.lock():
            self._check_fits(sweep)
            write_sweep_file(self.path, sweep)

    def _check_fits(self, sweep: SweepFile) -> None:
        """Raise UserError if the folder holds results that this sweep does not have."""
        known, held = self.read(), self.describe()
        if known is None or not held or sweep.contains(known):
            return
        held += f" of the scenario {known.attributes['title']!r}"
        changed = list_changed(known.sources, sweep.sources)
        if changed and known.attributes["sweep"] == sweep.attributes["sweep"]:
            raise UserError(
                f"{self.path}: {format_changed(changed)} since its {held} were computed or begun; "
                "undo the change, give another place with --out, or delete this folder"
            )
        raise UserError(
            f"{self.path}: holds {held}, not of this one (or of this one before it was changed: "
            "only more values on its axes and more trials continue from there); delete this "
            "folder, or give another place with --out"
        )

    def describe(self) -> str:
        """Describe the results in the folder; empty without any."""
        parts, begun = len(list_parts(self.path)), list_own(self.path / RUNNING, ".pt")
        if not parts and not begun:
            return ""
        more = ", checkpoints of what was running" if begun else ""
        return f"{format_count(parts, 'finished part')}{more}"

    def find_held(self, needs_models: bool, tell: Callable[[str], None]) -> set[Row]:
        """Return the rows that finished files hold, and set damaged files aside.

        tell: called with a sentence about each that is computed again.
        """
        held: set[Row] = set()
        for path in list_parts(self.path):
            if needs_models and not self._has_models(path.stem):
                tell(f"{path}: its models are not there; it is computed again")
                continue
            try:
                held |= _read_rows(path)
            except (UserError, OSError, ValueError) as error:
                reason = format_reason(error)
                aside = path.with_name(f"{path.name}{DAMAGED}")
                with wrap_write_errors(path), contextlib.suppress(FileNotFoundError):
                    path.replace(aside)
                    checksums.forget(path)
                tell(
                    f"{path}: is damaged ({reason}); kept as {aside.name}, what it held is "
                    "computed again"
                )
        return held

    def holds(self, stack: Stack, needs_models: bool) -> bool:
        """Return whether a stack has a file by now."""
        has_models = not needs_models or self._has_models(stack.name)
        return has_models and self.get_path(PARTS, stack.name).exists()

    def _has_models(self, stack: str) -> bool:
        """Return whether the models of a stack are there, or already where a run keeps them."""
        return self.get_path(MODELS, stack).exists() or (
            self.path.suffix == UNFINISHED
            and (trained.get_models_folder(self.path.with_suffix(".nc")) / f"{stack}.pt").exists()
        )

    def read_sizes(self) -> dict[str, int]:
        """Return the trials at once of each stack key for which memory was short before."""
        path = self.sizes_path
        if not path.exists():
            return {}
        try:
            return _SIZES.validate_json(read_text(path, MIB))
        except (OSError, ValueError) as error:
            reason = format_reason(error)
            raise DamagedError(
                f"{path}: is damaged ({reason}); remove it, and stacks have the size of "
                "engine.memory_gb",
                reason,
            ) from error

    def halve(self, stack: Stack) -> None:
        """Record that stacks like this one have at most half as many trials at once."""
        with self.lock():
            sizes = self.read_sizes()
            half = max(1, len(stack.rows) // 2)
            sizes[stack.key] = min(half, sizes.get(stack.key, half))
            write_text(self.sizes_path, json.dumps(sizes), replaces=True)

    def open(self, sweep: SweepFile) -> xr.Dataset:
        """Return what the folder holds of a sweep, see `open_sweep`."""
        return open_sweep(self.path, sweep)

    def forget(self, stack: str) -> None:
        """Remove the temporary files of a finished stack."""
        for path in (self.get_path(kind, stack) for kind in WORK):
            with contextlib.suppress(OSError):
                checksums.forget(path)
                path.unlink()

    def tidy(self) -> None:
        """Remove what a finished sweep needs no more."""
        for name in (LOCKS, *WORK):
            with contextlib.suppress(OSError):
                remove_own(self.path / name)


UNFINISHED = ".unfinished"
"""How the name of a run's folder ends, beside its result."""


def format_changed(names: Iterable[str]) -> str:
    """Write which files of the user have changed, or which objects without a file may have."""
    texts = sorted(names)
    verb = "has" if len(texts) == 1 else "have"
    if any(":" in name for name in texts):
        verb = "may have"
    return f"{', '.join(texts)} {verb} changed"


def _read_rows(path: Path) -> set[Row]:
    """Return the rows of a part. Raises DamagedError for one that is not whole."""
    try:
        with open_part(path) as part:
            names, trials = part["point_name"].values, part["trial"].values.tolist()
            if part.attrs["complete"] != 1:
                raise DamagedError(f"{path}: is not complete", "it is not complete")
            return {(str(name), trial) for name in names for trial in trials}
    except KeyError as error:
        raise DamagedError(f"{path}: has no {error}", f"it has no {error}") from error
