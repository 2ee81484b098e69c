"""A small copy of a result, to keep or to send: what was measured of whole trials and the joules of
all devices together, without what each device had (but by class, or if named), in single precision.

    python -m studies.common.slim results/fedrlr_fig5 studies/fedrlr/data/fedrlr_fig5.nc
    python -m studies.common.slim results/personal personal.nc --smallest

With --smallest the joules are also summed over their causes, and each variable is one chunk. Such a
file is about half as large, and is read as a whole. With --ends some variables are kept at the end
of each trial alone, which is where tables of whole runs read them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import xarray as xr

import otafl
from otafl.core import checksums
from otafl.core.files import write_atomically
from otafl.results.files import write_part
from studies.common.tables import command

DENSE = {"zlib": True, "complevel": 9, "fletcher32": True}
"""Encoding of the smallest files. Counts and values that stay repeat whole, so bytes stay in place;
those of joules, which grow at any rate, are shuffled."""

TEXT = {"dtype": "S1", "zlib": True, "complevel": 9}
"""Encoding of labels: HDF5 compresses characters, and not strings of any length."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", type=Path, help="file, or folder of a sweep")
    parser.add_argument("copy", type=Path, help="file to write")
    parser.add_argument("--variables", metavar="A,B", help="keep these alone, and how trials end")
    parser.add_argument("--ends", metavar="A,B", help="keep these at the end of each trial alone")
    parser.add_argument("--smallest", action="store_true", help="no causes, and one chunk each")
    parser.add_argument("--each", action="store_true", help="joules of each device, not their sum")
    args = parser.parse_args()
    ds = otafl.open_results(args.result)
    summed = set() if args.each else {"device"}
    if args.smallest:
        summed.add("cause")
    joules = [name for name, v in ds.items() if summed & {*v.dims} and v.attrs["units"] == "J"]
    for name in joules:
        dims = [dim for dim in ds[name].dims if dim in summed]
        ds[name] = ds[name].sum(dims, min_count=1, keep_attrs=True)
    named = (args.variables or "").split(",")
    own = [
        name
        for name, values in ds.items()
        if {"device", "class"} & {*values.dims} == {"device"} and name not in named
    ]
    slim = ds.drop_vars(own)
    if args.variables:
        ends = [name for name in ("end_round", "stop_round", "diverged_round") if name in slim]
        slim = slim[[*args.variables.split(","), *ends]]
    if args.ends:
        slim = keep_ends(slim, args.ends.split(","))
    if all("device" not in values.dims for values in slim.values()):
        slim = slim.drop_vars("device", errors="ignore")
    if all("cause" not in values.dims for values in slim.values()):
        slim = slim.drop_vars("cause", errors="ignore")
    for name in slim.data_vars:
        slim[name] = slim[name].astype("float32", keep_attrs=True)
    write_smallest(slim, args.copy) if args.smallest else write_part(slim, args.copy)
    print(f"{args.copy}: {args.copy.stat().st_size / 2**10:.0f} KiB")


def keep_ends(ds: xr.Dataset, names: list[str]) -> xr.Dataset:
    """Keep variables at the round at which each trial ends, as `select_at_end` finds it."""
    ends = ds["final_round"]
    for early in ("end_round", "stop_round"):
        ends = ds[early].fillna(ends) if early in ds else ends
    return ds.assign({name: ds[name].where(ds["round"] == ends) for name in names})


def write_smallest(slim: xr.Dataset, path: Path) -> None:
    """Write a result as `write_part` does, in fewer bytes."""
    encoding = {
        name: DENSE | {"chunksizes": v.shape, "shuffle": v.attrs.get("units") == "J"}
        for name, v in slim.items()
        if v.size
    }
    slim = slim.drop_encoding()
    encoding |= {name: TEXT for name, v in slim.coords.items() if v.dtype.kind in "UO" and v.ndim}
    with write_atomically(path, replaces=True) as temporary:
        slim.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
        checksums.forget(path)
    checksums.write(path)


if __name__ == "__main__":
    command(main)
