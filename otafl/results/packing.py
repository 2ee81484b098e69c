"""Pack finished parts of a sweep in fewer files: ten thousand parts would take minutes to open.

A fixed number of parts is packed at a time, and as many packs of one level into one of the next. A
pack is a part of more points. Dying in the middle leaves points in two files, with equal numbers,
which readers take once.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import UserError, WriteError, wrap_write_errors
from otafl.core.files import list_numbered
from otafl.results import origins
from otafl.results.dataset import join_parts
from otafl.results.files import PACKS, list_finished_files, open_part, read_part, write_part

AT_ONCE = 16
"""Files of a level that make one of the next."""

LARGE_BYTES = 2**24
"""Files of this size are left alone: opening them is not what takes the time."""


def read_stack_numbers(path: Path, attributes: Mapping[str, Any]) -> set[int]:
    """Return the numbers of the stacks that a file holds; older files say it by their names."""
    if "stacks" in attributes:
        return {int(number) for number in np.atleast_1d(attributes["stacks"])}
    return {int(path.stem)} if path.stem.isdecimal() else set()


def count_finished_stacks(folder: Path) -> int:
    """Count the stacks that the files of a folder hold."""
    found: set[int] = set()
    for path in list_finished_files(folder):
        with contextlib.suppress(UserError), open_part(path) as part:
            found |= read_stack_numbers(path, part.attrs)
    return len(found)


def pack(folder: Path, finished: bool = False) -> None:
    """Pack the parts of a folder.

    finished: no more parts follow, so that where there are packs, all files become one. Only one
    program at a time may call it. A damaged part stays where it is; nothing is lost if the disk is
    full.
    """
    level = 0
    while files := _list_small_files(folder, level):
        while len(files) >= AT_ONCE:
            _merge(folder, level + 1, files[:AT_ONCE])
            files = files[AT_ONCE:]
        level += 1
    rest = [path for path in list_finished_files(folder) if path.stat().st_size < LARGE_BYTES]
    if finished and len(rest) > 1 and any(path.parent.name == PACKS for path in rest):
        _merge(folder, level, rest)


def _list_small_files(folder: Path, pack_level: int) -> list[Path]:
    where = folder / ("packs" if pack_level else "parts")
    begin = f"{pack_level}-" if pack_level else ""
    files = [path for path in list_numbered(where, ".nc") if path.name.startswith(begin)]
    return [path for path in files if path.stat().st_size < LARGE_BYTES]


def _merge(folder: Path, pack_level: int, files: list[Path]) -> None:
    parts, sources = [], []
    for path in files:
        with contextlib.suppress(UserError):
            parts.append(read_part(path))
            sources.append(path)
    if not parts:
        return
    stacks = sorted(set().union(*map(lambda p, d: read_stack_numbers(p, d.attrs), sources, parts)))
    whole = join_parts(parts).assign_attrs(stacks=stacks)
    try:
        write_part(whole, _get_next_path(folder, pack_level))
    except WriteError:
        return
    for path in sources:
        with contextlib.suppress(OSError):  # its points are then in two files, and count once
            path.unlink()


def take_out(folder: Path, path: Path, stacks: set[int], points: set[int]) -> None:
    """Remove stacks, which hold these points, from a file of a folder.

    A file that becomes empty is removed. Only one program at a time may call it.
    """
    part = read_part(path)
    left = read_stack_numbers(path, part.attrs) - stacks
    if left:
        held = part["point_index"].values
        made = origins.remove_points(origins.read(part.attrs, held), points)
        rest = part.isel(point=~np.isin(held, list(points)))
        rest_attributes = {"stacks": sorted(left), origins.ATTRIBUTE: origins.to_json(made)}
        # under a name of its own: what a program has seen of a pack does not change
        write_part(
            rest.assign_attrs(rest_attributes),
            _get_next_path(folder, int(path.stem.partition("-")[0])),
        )
    with wrap_write_errors(path):
        path.unlink()


def _get_next_path(folder: Path, pack_level: int) -> Path:
    """Return the path of the next pack of a level."""
    taken = [int(re.sub(r".*-", "", path.stem)) for path in list_numbered(folder / "packs", ".nc")]
    return folder / "packs" / f"{pack_level}-{max(taken, default=-1) + 1:05d}.nc"
