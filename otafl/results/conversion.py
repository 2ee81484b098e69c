"""Write results as other files: Zarr, one combined NetCDF file, or tidy CSV.

Zarr is written in its version 2, which zarr-python 2 and 3 and other readers know; version 3 has no
settled form of text coordinates yet.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.core.packages import import_extra
from otafl.core.suggestions import make_unknown_name_error
from otafl.results.files import open_results, write_part

SUFFIXES = (".zarr", ".nc", ".csv")
CHUNK_BYTES = 2**24
"""Largest size of a variable's chunks in Zarr, and the approximate part of a large result that is
read at once."""
CSV_ROWS = 500_000
"""Rows that are made at once."""


def convert(
    source: Path, out: Path, variables: Sequence[str] | None = None, force: bool = False
) -> list[str]:
    """Write a result file or a sweep's folder as `out`, whose suffix says how.

    .zarr: a folder for `xarray.open_zarr`. .nc: one file, as `otafl run` writes. Both keep values,
    coordinates and attributes as they are. .csv: a line a point, trial and round, and a column for
    each variable that has no other dims; of `variables` with other dims (device) there is a line
    for each of these too. Lines without any value (rounds that a point has not) are left out.
    variables: only these. force: replace what is at `out`. Results too large for memory are read in
    parts. `out` is whole or not there. Returns what is worth telling. Raises UserError.
    """
    if out.suffix not in SUFFIXES:
        raise UserError(f"{out}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if out.exists() and out.resolve() == source.resolve():
        raise UserError(f"{out}: is the result itself; give another name")
    if out.exists() and not force:
        raise UserError(f"{out}: is there already; --force replaces it")
    if out.exists() and out.is_dir() != (out.suffix == ".zarr"):
        kind = "a folder" if out.is_dir() else "a file"
        raise UserError(f"{out}: is {kind}, which {out.suffix} is not; give another name")
    if out.suffix == ".zarr" and out.is_dir() and not _is_zarr(out):
        raise UserError(f"{out}: is a folder that holds no Zarr; give another name")
    ds = open_results(source)
    for name in variables or ():
        if name not in ds.data_vars:
            raise make_unknown_name_error(
                f"--variables {name}", "a variable of this result", name, ds.data_vars
            )
    if variables is not None:
        ds = ds[list(variables)]
    sentences: list[str] = []
    if out.suffix == ".csv":
        sentences = _write_csv(ds, out, all_dims=variables is not None)
    elif out.suffix == ".nc":
        write_part(ds, out)
    else:
        _write_zarr(ds, out)
    return sentences


def _write_zarr(ds: xr.Dataset, out: Path) -> None:
    import_extra(f"{out}: Zarr", "zarr", "zarr")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}") from error
    temporary, old = place / "new", place / "old"
    try:
        _set_chunks(ds).to_zarr(temporary, mode="w", zarr_format=2, consolidated=True)
        if out.exists():
            out.rename(old)
        temporary.rename(out)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}") from error
    finally:
        if old.exists() and not out.exists():
            os.replace(old, out)
        shutil.rmtree(place, ignore_errors=True)


def _is_zarr(folder: Path) -> bool:
    return any((folder / name).exists() for name in (".zgroup", "zarr.json"))


def _set_chunks(ds: xr.Dataset) -> xr.Dataset:
    """Cut variables into chunks of one size each, which Zarr needs, at most `CHUNK_BYTES`.

    The first dims are cut first. A smaller variable in memory stays whole.
    """
    out = ds.copy()
    for name, values in ds.variables.items():
        if not values.ndim or (values.chunks is None and values.nbytes <= CHUNK_BYTES):
            continue
        sizes = dict(values.sizes)
        for dim in sizes:
            rest = values.dtype.itemsize * math.prod(sizes.values()) // max(1, sizes[dim])
            sizes[dim] = min(sizes[dim], max(1, CHUNK_BYTES // max(1, rest)))
        out[name] = ds[name].chunk(sizes)
        out[name].encoding.pop("chunks", None)
    return out


def _write_csv(ds: xr.Dataset, out: Path, all_dims: bool) -> list[str]:
    axes = [str(dim) for dim in ds["final_round"].dims]
    plain = {*axes, "trial", "round"}
    names = [str(n) for n, v in ds.data_vars.items() if all_dims or set(v.dims) <= plain]
    left_out = [str(n) for n in ds.data_vars if n not in names]
    if not names:
        raise UserError(f"{out}: no variable is left to write; name some with --variables")
    used = {str(dim) for name in names for dim in ds[name].dims}
    order = [*axes, *(str(dim) for dim in ds.dims if dim in used and dim not in axes)]
    order.sort(key=lambda dim: (dim not in axes, dim != "trial", dim != "round"))
    whole = [n for n in names if "round" in ds[n].dims] or names
    table = ds[names].drop_vars("final_round", errors="ignore")
    # what lies along one axis becomes a column of its own; a joint axis' place says less
    table = table.drop_vars([n for n, c in table.coords.items() if not set(c.dims) & set(order)])
    with (
        write_atomically(out) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        first = True
        for block in _split_rows(table, order):
            frame = block.load().to_dataframe(dim_order=order).reset_index()
            frame = frame.dropna(subset=whole, how="all")
            columns = [c for c in frame.columns if c not in names]
            frame[[*columns, *names]].to_csv(file, index=False, header=first)
            first = False
    if left_out:
        more = "with other dims, not written; --variables takes them"
        return [f"{', '.join(left_out)}: {more}"]
    return []


def _split_rows(ds: xr.Dataset, order: Sequence[str]) -> list[xr.Dataset]:
    """Cut the dataset along its first dim that has places, into about `CSV_ROWS` rows, in order."""
    dim = next((dim for dim in order if ds.sizes[dim] > 1), order[0])
    rows = math.prod(ds.sizes[dim] for dim in order)
    step = max(1, CSV_ROWS * ds.sizes[dim] // max(1, rows))
    return [ds.isel({dim: slice(begin, begin + step)}) for begin in range(0, ds.sizes[dim], step)]
