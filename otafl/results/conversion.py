"""Write results as other files: Zarr, one combined NetCDF file, or tidy CSV.

Zarr is written in its version 2, which zarr-python 2 and 3 and other readers know; version 3 has no
settled form of text coordinates yet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from otafl.core.errors import UserError, wrap_write_errors
from otafl.core.files import write_atomically
from otafl.core.packages import import_extra
from otafl.core.suggestions import make_unknown_name_error
from otafl.results.files import open_results, write_part

SUFFIXES = (".zarr", ".nc", ".csv")


def convert(source: Path, out: Path, variables: Sequence[str] | None = None) -> list[str]:
    """Write a result file or a sweep's folder as `out`, whose suffix says how.

    .zarr: a folder for `xarray.open_zarr`. .nc: one file, as `otafl run` writes. Both keep values,
    coordinates and attributes as they are. .csv: a line a point, trial and round, and a column for
    each variable that has no other dims; of `variables` with other dims (device) there is a line
    for each of these too. Lines without any value (rounds that a point has not) are left out.

    Parameters
    ----------
    source, out : Path
        `out` must not exist; it is whole or not there.
    variables : sequence of str, optional
        Only these.

    Returns
    -------
    list of str
        A sentence about variables that were left out.

    Raises
    ------
    UserError
        For a name that cannot be written or is taken, and an unknown variable.
    """
    if out.suffix not in SUFFIXES:
        raise UserError(f"{out}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if out.exists() and out.resolve() == source.resolve():
        raise UserError(f"{out}: is the result itself; give another name")
    if out.exists():
        raise UserError(f"{out}: is there already; remove it, or give another name")
    dataset = open_results(source)
    for name in variables or ():
        if name not in dataset.data_vars:
            raise make_unknown_name_error(
                f"--variables {name}", "a variable of this result", name, dataset.data_vars
            )
    if variables is not None:
        dataset = dataset[list(variables)]
    if out.suffix == ".csv":
        return _write_csv(dataset, out, all_dims=variables is not None)
    if out.suffix == ".nc":
        write_part(dataset, out)
        return []
    import_extra(f"{out}: Zarr", "zarr", "zarr")
    with wrap_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as place:
            made = Path(place, "new")
            dataset.load().to_zarr(made, zarr_format=2, consolidated=True)
            made.rename(out)
    return []


def _write_csv(dataset: xr.Dataset, out: Path, all_dims: bool) -> list[str]:
    axes = [str(dim) for dim in dataset["final_round"].dims]
    plain = [*axes, "trial", "round"]
    names = [n for n, values in dataset.data_vars.items() if all_dims or {*values.dims} <= {*plain}]
    if not names:
        raise UserError(f"{out}: no variable is left to write; name some with --variables")
    table = dataset[names].drop_vars("final_round", errors="ignore")
    # what lies along one axis becomes a column of its own; a joint axis' place says less
    order = [dim for dim in (*plain, *table.dims) if any(dim in table[n].dims for n in names)]
    order = list(dict.fromkeys(order))
    table = table.drop_vars([n for n, one in table.coords.items() if not {*one.dims} & {*order}])
    frame = table.load().to_dataframe(dim_order=order).reset_index()
    frame = frame.dropna(subset=[n for n in names if "round" in table[n].dims] or names, how="all")
    columns = [*frame.columns.difference(names, sort=False), *names]
    with write_atomically(out) as temporary:
        frame[columns].to_csv(temporary, index=False)
    left_out = [str(name) for name in dataset.data_vars if name not in names]
    if not left_out:
        return []
    more = "with other dims, not written; --variables takes them"
    return [f"{', '.join(left_out)}: {more}"]
