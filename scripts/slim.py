"""A small copy of a result, to keep or to send: what was measured of whole trials and the joules of
all devices together, without what each device had (but by class, or if named), in single precision.

    python scripts/slim.py results/fedrlr_fig5 results/reference/fedrlr/fedrlr_fig5.nc
"""

from __future__ import annotations

import argparse
from pathlib import Path

import otafl
from otafl.results.files import write_part


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", type=Path, help="file, or folder of a sweep")
    parser.add_argument("copy", type=Path, help="file to write")
    parser.add_argument("--variables", metavar="A,B", help="keep these alone, and how trials end")
    args = parser.parse_args()
    ds = otafl.open_results(args.result)
    joules = [name for name, v in ds.items() if "device" in v.dims and v.attrs["units"] == "J"]
    for name in joules:
        ds[name] = ds[name].sum("device", min_count=1, keep_attrs=True)
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
    if all("device" not in values.dims for values in slim.values()):
        slim = slim.drop_vars("device", errors="ignore")
    for name in slim.data_vars:
        slim[name] = slim[name].astype("float32", keep_attrs=True)
    write_part(slim, args.copy)
    print(f"{args.copy}: {args.copy.stat().st_size / 2**10:.0f} KiB")


if __name__ == "__main__":
    main()
