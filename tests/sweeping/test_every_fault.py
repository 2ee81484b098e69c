"""Every file operation of a run fails in turn, as SQLite tests itself: whatever it was, a sentence
is said, and the same command goes on to the bits of a run that nothing disturbed.

What fails is opening for writing, writing (half of it is written), `torch.save`, fsync, replace,
rename, unlink and mkdir, each once.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import os
import re
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr
from contract.small import scenario
from contract.test_sweeps import same

from otafl import sweeping
from otafl.core.errors import UserError, WriteError
from otafl.results import models as trained
from otafl.results import packing, plain_data
from otafl.results.files import read_part, write_part
from otafl.scenario import Scenario
from otafl.sweeping import FailedStacks
from otafl.sweeping.verifying import verify

pytestmark = pytest.mark.exact

BATCHES = {"engine.memory_gb": 1e-9, "trials": 2}
"""Two batches a stack, so that there are records of finished ones."""

LITTLE = {
    "training.rounds": 2,
    "training.eval_every": 2,
    "training.local_steps": 1,
    "output.save_models": True,
    "transport": "ideal",
    "devices.count": 2,
}
"""What is computed and recorded is little: the files are the same."""


class Faults:
    """Counts the file operations below a folder, and lets one of them fail.

    operations: what each was. wanted: the number of the one that fails, from 1; 0 for none.
    """

    def __init__(self, folder: Path, wanted: int) -> None:
        self.folder, self.wanted = str(folder), wanted
        self.operations: list[str] = []

    def count(self, what: str, path: object) -> bool:
        """Whether this operation is to fail."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not str(name).startswith(self.folder):
            return False
        self.operations.append(f"{what} {name.removeprefix(self.folder)}")
        return len(self.operations) == self.wanted

    def check(self, what: str, path: object, number: int = errno.EIO) -> None:
        if self.count(what, path):
            raise OSError(number, os.strerror(number), str(path))


class Written:
    """A file that is open for writing; of a write that fails half is written."""

    def __init__(self, file: Any, faults: Faults, path: object) -> None:
        self._file, self._faults, self._path = file, faults, path

    def write(self, data: Any) -> int:
        if self._faults.count("write", self._path):
            self._file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(data)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextlib.contextmanager
def faulty(folder: Path, wanted: int) -> Iterator[Faults]:
    """Let one operation below the folder fail, within."""
    faults = Faults(folder, wanted)
    patch = pytest.MonkeyPatch()

    def opened(file: Any, mode: str = "r", *rest: Any, true: Any = io.open, **more: Any) -> Any:
        if not set(mode) & set("wax+") or isinstance(file, int):
            return true(file, mode, *rest, **more)
        faults.check("open", file, errno.ENOSPC)
        return Written(true(file, mode, *rest, **more), faults, file)

    def low(path: Any, flags: int, *rest: Any, true: Any = os.open, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            faults.check("open", path, errno.ENOSPC)
        return true(path, flags, *rest, **more)

    def saved(tree: Any, path: Any, true: Any = torch.save) -> None:
        if faults.count("save", path):
            Path(path).write_bytes(b"PK\x03\x04half")
            raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
        true(tree, path)

    def failing(name: str) -> Callable[..., Any]:
        true = getattr(os, name)

        def call(path: Any, *rest: Any, **more: Any) -> Any:
            if more.get("dir_fd") is None:  # else its path is not known
                faults.check(name, path)
            return true(path, *rest, **more)

        return call

    patch.setattr(builtins, "open", opened)
    patch.setattr(io, "open", opened)
    patch.setattr(os, "open", low)
    patch.setattr(torch, "save", saved)
    for name in ("fsync", "replace", "rename", "unlink", "mkdir"):
        patch.setattr(os, name, failing(name))
    try:
        yield faults
    finally:
        patch.undo()


Make = Callable[[Path], Any]


@functools.cache
def of_four() -> Scenario:
    return scenario({"sweep": {"training.batch_size": [2, 3]}, **LITTLE, **BATCHES})


@functools.cache
def of_one() -> Scenario:
    return scenario({**LITTLE, "trials": 1})


def swept(folder: Path) -> Any:
    where, quiet = folder / "s", lambda text: None
    return sweeping.sweep(of_four(), where, checkpoint_every=1, tell=quiet).load()


def ran(folder: Path) -> Any:
    where, quiet = folder / "r.nc", lambda text: None
    return sweeping.run(of_one(), where, checkpoint_every=1, tell=quiet).load()


def attempt(make: Make, folder: Path, wanted: int) -> list[str]:
    """Make it with one fault, whose operations are returned; what it raises is for the user."""
    folder.mkdir()
    with faulty(folder, wanted) as faults, contextlib.suppress(UserError, FailedStacks):
        make(folder)
    return faults.operations


def distinct(operations: Sequence[str]) -> list[int]:
    """The numbers, from 1, of operations that differ in more than digits and the random part of a
    temporary name: the first of each."""
    first: dict[str, int] = {}
    for number, text in enumerate(operations, 1):
        first.setdefault(re.sub(r"\.[^./]+\.tmp$|\d+", "", text), number)
    return list(first.values())


def check_one(make: Make, folder: Path, wanted: int, whole: xr.Dataset, models: list[str]) -> str:
    """One operation fails, which is returned, and then none. The result is read from what was
    written, the checksums of which are right."""
    failed = attempt(make, folder, wanted)[wanted - 1]
    same(make(folder), whole)
    (place,) = (path for path in folder.iterdir() if path.name in ("s", "r.nc"))
    assert [one for one in verify(place) if one.fault] == [], failed
    assert [path for path in folder.rglob("*") if ".tmp" in path.name] == [], failed
    assert [path.name for path in trained.list_model_files(place)] == models, failed
    return failed


def check_all(make: Make, home: Path) -> list[str]:
    """Each distinct operation fails in turn; return what they were."""
    whole = make(home / "whole")
    models = sorted(path.name for path in (home / "whole").rglob("*models/*.pt"))
    every = distinct(attempt(make, home / "counted", 0))
    return [check_one(make, home / str(n), n, whole, models) for n in every]


@pytest.fixture(autouse=True)
def _packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "AT_ONCE", 2)


@pytest.mark.slow(seconds=80)
@pytest.mark.parametrize("make", [swept, ran])
def test_every_operation_fails_once(make: Make, tmp_path: Path) -> None:
    """Those that differ in the number of a stack or batch alone count as one."""
    failed = check_all(make, tmp_path)
    kinds = {text.partition(" ")[0] for text in failed}
    assert kinds >= {"open", "write", "save", "fsync", "replace", "unlink", "mkdir"}
    assert "rename" in kinds or make is swept  # of the folder beside a run's result
    files = ("plan.json", "scenario.yaml", "checkpoint.pt", "models", ".nc")
    assert all(any(name in text for text in failed) for name in files)


def test_files_that_hdf5_and_torch_cannot_write(tmp_path: Path) -> None:
    """Their own programs write beyond a limit on the size of files, as on a full disk: the error
    is the user's, and what was there stays."""
    write_part(sweeping.run(scenario({"training.rounds": 1, "trials": 1})), tmp_path / "a.nc")
    plain_data.save({"a": torch.zeros(10)}, tmp_path / "a.pt")
    large = read_part(tmp_path / "a.nc")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(WriteError, match=r"a\.pt: cannot be written"):
            plain_data.save({"a": torch.zeros(100_000)}, tmp_path / "a.pt")
        with pytest.raises(WriteError, match=r"a\.nc: cannot be written"):
            write_part(large, tmp_path / "a.nc")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert plain_data.load(tmp_path / "a.pt")["a"].tolist() == [0.0] * 10
    same(read_part(tmp_path / "a.nc"), large)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nc", "a.pt"]
