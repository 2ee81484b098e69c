"""Files that someone else may have written: regular ones up to a size are read, nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otafl.core import csv_table
from otafl.core.errors import UserError
from otafl.core.files import MIB, open_regular, read_bytes, read_text
from otafl.data import idx
from otafl.results.files import open_results
from otafl.scenario import load_scenario
from otafl.topology import graph

pytestmark = pytest.mark.exact


def pipe(folder: Path) -> Path:
    """A named pipe that nobody writes to: opening it for reading would wait for ever."""
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def zero(folder: Path) -> Path:
    """A device without end."""
    return Path("/dev/zero")


def linked(folder: Path) -> Path:
    (folder / "link").symlink_to("/dev/zero")
    return folder / "link"


ODD = [pipe, zero, linked]

READERS: dict[str, Callable[[Path], Any]] = {
    "scenario": load_scenario,
    "result": open_results,
    "devices": lambda path: csv_table.read(str(path), "devices.compute.path", ["flops_per_s"]),
    "weights": lambda path: graph.read_weights(str(path)),
    "pixels": lambda path: idx.read(path, "labels"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_regular_file_is_refused_at_once(
    odd: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = odd(tmp_path)
    for read in READERS.values():
        with pytest.raises(UserError, match=r"is a (named pipe|device), not a regular file"):
            read(path)


def test_sizes_have_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as sparse:
        sparse.truncate(2 * MIB)
    with pytest.raises(OSError, match="has more than 1 MiB"):
        read_bytes(file, MIB)
    assert len(read_bytes(file, 2 * MIB)) == 2 * MIB
    with pytest.raises(OSError, match="No such file"):
        open_regular(tmp_path / "none")
    (tmp_path / "text").write_text("°")
    assert read_text(tmp_path / "text", MIB) == "°"
