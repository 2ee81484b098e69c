"""Every file operation of a run fails in turn, as SQLite tests itself: whatever it was, a sentence
is said, and the same command goes on to the bits of a run that nothing disturbed.

What fails is opening for writing, writing (half of it is written), `torch.save`, `to_netcdf`,
fsync, replace, rename, unlink and mkdir, each once.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr
from contract.small import scenario
from support.stopped_sweeps import same

from otafl import sweeping
from otafl.core.errors import UserError, WriteError
from otafl.results import models as trained
from otafl.results.files import read_part, write_part
from otafl.sweeping import FailedStacks
from otafl.sweeping.verifying import verify

pytestmark = pytest.mark.exact

LITTLE = {
    "training.rounds": 2,
    "training.eval_every": 2,
    "training.local_steps": 1,
    "output.save_models": True,
    "transport": "ideal",
    "devices.count": 2,
    "trials": 1,
}


class Faults:
    """Counts the file operations below a folder, and lets one of them fail.

    operations: what each was. wanted: the number of the one that fails, from 1; 0 for none.
    """

    def __init__(self, folder: Path, wanted: int) -> None:
        self.folder, self.wanted = str(folder), wanted
        self.operations: list[str] = []

    def count(self, what: str, path: Any) -> bool:
        """Whether this operation is to fail."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        name = str(os.fspath(path))
        if not name.startswith(self.folder):
            return False
        self.operations.append(f"{what} {name.removeprefix(self.folder)}")
        return len(self.operations) == self.wanted

    def call(self, name: str) -> Callable[..., Any]:
        """A function of `os` that may fail."""
        true = getattr(os, name)

        def call(path: Any, *rest: Any, **more: Any) -> Any:
            reads = name == "open" and not rest[0] & (os.O_WRONLY | os.O_RDWR)
            # of a name in an open folder the path is not known
            if not reads and more.get("dir_fd") is None and self.count(name, path):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return true(path, *rest, **more)

        return call

    def open(self, file: Any, mode: str = "r", *rest: Any, true: Any = open, **more: Any) -> Any:
        """Open a file; of a write that fails half is written."""
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return true(file, mode, *rest, **more)
        if self.count("open", file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        opened = true(file, mode, *rest, **more)
        if self.count("write", file):
            write = opened.write

            def fail(data: Any) -> None:
                write(data[: len(data) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            opened.write = fail
        return opened

    def save(self, tree: Any, path: Any, true: Any = torch.save) -> None:
        """Save tensors, or half of them."""
        if self.count("save", path):
            Path(path).write_bytes(b"PK\x03\x04half")
            raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
        true(tree, path)

    def to_netcdf(
        self, dataset: xr.Dataset, path: Path, true: Any = xr.Dataset.to_netcdf, **options: Any
    ) -> None:
        """Write a dataset, or half of it."""
        if self.count("to_netcdf", path):
            path.write_bytes(b"\x89HDF\r\n\x1a\nhalf")
            raise RuntimeError("NetCDF: HDF error")
        true(dataset, path, **options)


Make = Callable[[Path], Any]

EVERY = int(os.environ.get("OTAFL_TEST_FAULTS", "4"))
"""Of so many kinds of operations one fails in a test of its own; with 1 each of them does."""


def swept(folder: Path) -> Any:
    one = scenario({"sweep": {"training.batch_size": [2, 3]}, **LITTLE})
    return sweeping.sweep(one, folder / "s", checkpoint_every=1, tell=lambda text: None).load()


def ran(folder: Path) -> Any:
    where, quiet = folder / "r.nc", lambda text: None
    return sweeping.run(scenario(LITTLE), where, checkpoint_every=1, tell=quiet).load()


def attempt(make: Make, folder: Path, wanted: int) -> list[str]:
    """Make it with one fault, whose operations are returned; what it raises is for the user."""
    folder.mkdir()
    faults = Faults(folder, wanted)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(UserError, FailedStacks):
        patch.setattr(builtins, "open", faults.open)
        patch.setattr(io, "open", faults.open)
        patch.setattr(torch, "save", faults.save)
        patch.setattr(xr.Dataset, "to_netcdf", lambda *a, **b: faults.to_netcdf(*a, **b))
        for name in ("open", "fsync", "replace", "rename", "unlink", "mkdir"):
            patch.setattr(os, name, faults.call(name))
        make(folder)
    return faults.operations


@pytest.mark.slow(seconds=80)
@pytest.mark.parametrize("make", [swept, ran])
def test_every_operation_fails_once(make: Make, tmp_path: Path) -> None:
    """Those that differ in the number of a stack or the random part of a name alone are one."""
    whole = make(tmp_path / "whole")
    first: dict[str, int] = {}
    for number, text in enumerate(attempt(make, tmp_path / "counted", 0), 1):
        what = re.sub(r"\.[^./]+\.tmp$|[0-9a-f]{16}", "", text)
        first.setdefault(what, number)
    for what, number in [*first.items()][::EVERY]:
        folder = tmp_path / str(number)
        attempt(make, folder, number)
        same(make(folder), whole)
        (place,) = (path for path in folder.iterdir() if path.name in ("s", "r.nc"))
        assert not [one for one in verify(place) if one.fault], what
        assert list_names(folder) == list_names(tmp_path / "whole"), what
    kinds = {what.partition(" ")[0] for what in first}
    assert kinds >= {"open", "write", "save", "to_netcdf", "fsync", "replace", "unlink", "mkdir"}
    files = ("sweep.json", "running", "models", "parts", ".sha256")
    assert all(any(name in what for what in first) for name in files)


def list_names(folder: Path) -> list[str]:
    """All files but checksums, which one that was written at a fault has none of."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(name for name in names if not name.endswith(".sha256"))


def test_files_that_hdf5_and_torch_cannot_write(tmp_path: Path) -> None:
    """Their own programs write beyond a limit on the size of files, as on a full disk: the error
    is the user's, and what was there stays."""
    write_part(sweeping.run(scenario({"training.rounds": 1, "trials": 1})), tmp_path / "a.nc")
    trained.save_plain({"a": torch.zeros(10)}, tmp_path / "a.pt")
    large, names = read_part(tmp_path / "a.nc"), list_names(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(WriteError, match=r"a\.pt: cannot be written"):
            trained.save_plain({"a": torch.zeros(100_000)}, tmp_path / "a.pt")
        with pytest.raises(WriteError, match=r"a\.nc: cannot be written"):
            write_part(large, tmp_path / "a.nc")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert trained.load_plain(tmp_path / "a.pt")["a"].tolist() == [0.0] * 10
    same(read_part(tmp_path / "a.nc"), large)
    assert list_names(tmp_path) == names
