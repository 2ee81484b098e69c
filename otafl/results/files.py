"""Write results whole or not at all, and read them: a file, or a sweep's folder as one result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypeVar

import xarray as xr
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from otafl import scenario as scenarios
from otafl.core import checksums
from otafl.core.checksums import format_reason
from otafl.core.errors import DamagedError, UserError
from otafl.core.files import HDF5, MIB, list_own, open_regular, read_text, write_atomically
from otafl.core.suggestions import format_near_file
from otafl.results import header
from otafl.results.dataset import FORMAT, combine, select_points
from otafl.results.origins import check_format

Result = TypeVar("Result")

LAZY_ABOVE_BYTES = 2**30
"""Results larger than this are read from disk only where they are used."""


SWEEP_FILE = "sweep.json"
MAX_SWEEP_BYTES = 64 * MIB
"""Largest file that is read."""


class SweepFile(BaseModel):
    """The file of a sweep's folder: which points it has, under their names.

    Someone else may have written it, so it is read with limits, and nothing that it names is
    imported.

    attributes: of its result that say which scenario it has. names: of its points, in the sweep's
    order. trials: their number. sources: files of user-defined code, with their hashes.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    attributes: dict[str, str]
    names: list[Annotated[str, Field(pattern="^[0-9a-f]{20}$")]]
    trials: PositiveInt
    sources: dict[str, str]

    def contains(self, other: SweepFile) -> bool:
        """Return whether another sweep has no points and trials but those of this one."""
        return set(other.names) <= set(self.names) and other.trials <= self.trials


def read_sweep_file(folder: Path) -> SweepFile:
    """Read the file of a folder.

    Raises DamagedError where it is damaged, UserError where there is none.
    """
    path = folder / SWEEP_FILE
    if not path.exists():
        if not list_parts(folder):
            raise _make_empty_error(folder)
        raise UserError(f"{path}: is missing; the same command writes it again and keeps all parts")
    try:
        checksums.check(path)
        return SweepFile.model_validate_json(read_text(path, MAX_SWEEP_BYTES))
    except (OSError, ValueError) as error:
        reason = format_reason(error)
        raise DamagedError(
            f"{path}: is damaged or no file of a sweep ({reason}); delete this file, and the "
            "same command keeps all parts, or give another place with --out",
            reason,
        ) from error


def _make_empty_error(folder: Path) -> UserError:
    """Return the error of a folder without finished parts."""
    return UserError(
        f"{folder}: no finished parts (parts/*.nc) in this folder; give a result file or "
        "the folder of an `otafl sweep` of which at least one part is finished"
    )


def write_sweep_file(folder: Path, sweep: SweepFile) -> None:
    """Write the file of a folder. Raises WriteError where the disk does not allow it."""
    path = folder / SWEEP_FILE
    with write_atomically(path, replaces=True) as temporary:
        temporary.write_text(json.dumps(sweep.model_dump()), encoding="utf-8")
        checksums.forget(path)
    checksums.write(path)


PARTS = "parts"
"""Folder of a sweep's finished stacks."""

COMPRESSED = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}
"""How arrays of numbers are written."""


def write_part(dataset: xr.Dataset, path: Path | str) -> None:
    """Write a dataset as NetCDF, and its checksum beside it.

    The file is whole or not there at all. Raises WriteError where the folder or the disk does not
    allow it.
    """
    path = Path(path)
    numbers = [n for n, one in dataset.variables.items() if one.ndim and one.dtype.kind in "fiu"]
    encoding = {name: COMPRESSED for name in numbers if dataset[name].size}
    with write_atomically(path, replaces=True) as temporary:
        try:
            _call_in_thread(dataset.to_netcdf, temporary, engine="netcdf4", encoding=encoding)
        except UnicodeEncodeError as error:
            raise OSError("netCDF needs a name in UTF-8") from error
        except RuntimeError as error:  # of HDF5, on a full disk say
            raise OSError(str(error)) from error
        checksums.forget(path)
    checksums.write(path)


def read_part(path: Path | str, lazy: bool = False) -> xr.Dataset:
    """Read one file as it was written; `lazy` reads values only where they are used, in chunks.

    A file of up to `LAZY_ABOVE_BYTES` is compared with its checksum, if it has one; of a larger one
    HDF5 compares the chunks that are read.

    Raises DamagedError for a file that is damaged, UserError for one that is missing, not otafl's,
    or of a later format.
    """
    if lazy:
        return open_part(path, chunks={})
    with open_part(path) as dataset:
        try:
            return _call_in_thread(dataset.load)
        except Exception as error:  # what netCDF4 raises for damaged files is not documented
            raise make_damaged_error(Path(path), format_reason(error)) from error


def _call_in_thread(fn: Callable[..., Result], *args: Any, **options: Any) -> Result:
    """Call a function where Ctrl-C does not reach it; the interruption comes once it has returned.

    A lock of xarray's that is interrupted while it is taken stays locked, and the file could never
    be closed.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fn, *args, **options).result()


def open_part(path: Path | str, **options: Any) -> xr.Dataset:
    """Open one file and read its attributes.

    Values are read where they are used, until it is closed. options: of `xarray.open_dataset`.
    Raises what `read_part` does.
    """
    path = Path(path)
    _check_file(path)
    try:
        if path.stat().st_size <= LAZY_ABOVE_BYTES:
            checksums.check(path)
        dataset = _call_in_thread(xr.open_dataset, path, engine="netcdf4", **options)
    except Exception as error:  # what netCDF4 raises for damaged files is not documented
        raise make_damaged_error(path, format_reason(error)) from error
    try:
        return _check_dataset(dataset, path)
    except BaseException:
        dataset.close()
        raise


def _check_dataset(dataset: xr.Dataset, path: Path) -> xr.Dataset:
    """Return a file's dataset as this version writes it; raise UserError where it is none."""
    if "scenario_hash" not in dataset.attrs or "sweep" not in dataset.attrs:
        raise UserError(
            f"{path}: is a NetCDF file, but no otafl result; give a file that `otafl run` wrote or "
            "the folder of an `otafl sweep`"
        )
    version = dataset.attrs.get("otafl_version", "")
    check_format(path, dataset.attrs.get("format", 0), FORMAT, version)
    try:
        dataset.attrs = header.check(dataset)
    except UserError as error:
        what = "is damaged, or was changed by another program"
        raise make_damaged_error(path, str(error), what) from error
    if "final_round" not in dataset.variables:
        last = float(dataset["round"].max()) if dataset.sizes.get("round") else math.nan
        dataset = dataset.assign_coords(final_round=last)
    for values in dataset.variables.values():  # of text: a length, to which xarray cuts what it
        if values.dtype.kind == "U":  # writes, also the longer labels of another result beside it
            values.encoding.pop("dtype", None)
    return dataset


def make_damaged_error(path: Path, reason: str, description: str = "is damaged") -> DamagedError:
    """Return the error of a damaged result."""
    return DamagedError(
        f"{path}: {description} ({reason}); run the same command again: only what it held is "
        "computed again",
        reason,
    )


def open_results(source: Path | str) -> xr.Dataset:
    """Open a result file, or the folder of a sweep.

    Parameters
    ----------
    source : str or Path
        A NetCDF file that otafl wrote, or the folder of a sweep, finished or not.

    Returns
    -------
    xarray.Dataset
        One dataset with dims (sweep axes, trial, round[, device]), NaN for points that are not
        there yet. Large results are read lazily.

    Raises
    ------
    UserError
        Names the file that cannot be read.
    """
    source = Path(source)
    if source.is_dir():
        return open_sweep(source, read_sweep_file(source))
    part = read_part(source, lazy=_is_large([source]))
    return combine([part], part.attrs) if "point" in part.dims else part


def open_sweep(folder: Path, sweep: SweepFile) -> xr.Dataset:
    """Return the parts in a folder that belong to a sweep as one dataset.

    Raises UserError if there is no part.
    """
    paths = list_parts(folder)
    lazy = _is_large(paths)
    found = (select_points(read_part(path, lazy), sweep) for path in paths)
    parts = [part for part in found if part is not None]
    if not parts:
        raise _make_empty_error(folder)
    return combine(parts, sweep.attributes)


def list_parts(folder: Path) -> list[Path]:
    """List the files of the finished stacks in a sweep's folder."""
    return list_own(folder / PARTS, ".nc")


def _is_large(paths: Sequence[Path]) -> bool:
    """Return whether files are read only where their values are used."""
    return sum(path.stat().st_size for path in paths if path.is_file()) > LAZY_ABOVE_BYTES


def _check_file(path: Path) -> None:
    """Raise UserError, which names the kind of the file, if it is evidently no result."""
    if path.is_dir():
        raise UserError(
            f"{path}: is a folder; give a result file or the folder of an `otafl sweep`"
        )
    if not path.exists():
        near = format_near_file(path, f"*{path.suffix}") or ";"
        raise UserError(f"{path}: no such file{near} `otafl run` and `otafl sweep` write results")
    try:
        with open_regular(path) as file:
            begins = file.read(len(HDF5))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    if begins == HDF5 or path.parent.name == PARTS:
        return
    if scenarios.is_scenario(path):
        raise UserError(
            f"{path}: is a scenario; `otafl run {path}` or `otafl sweep {path}` makes a result of "
            f"it, `otafl check {path}` tells what it says"
        )
    raise UserError(
        f"{path}: is no result of otafl; give a file that `otafl run` wrote or the folder of an "
        "`otafl sweep`"
    )
