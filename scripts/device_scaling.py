"""How accuracy, aggregation error, airtime and joules grow with the number of devices, for every
other choice of a sweep over devices.count: a table, the exponent of the growth, a figure.

    otafl sweep scenarios/fashion_mnist_gbma_ci.yaml
    python scripts/device_scaling.py results/fashion_mnist_gbma_ci --out scaling.png
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from tables import command, draw_panels, make_parser, open_result_at, print_head, print_row

from otafl.analysis.points import flatten_points, swap_to_coordinate
from otafl.analysis.summary import format_mean_std
from otafl.plots import find_main_variable
from otafl.results.end_values import select_end_total

COUNT = "device_count"
COSTS = ("aggregation_nmse", "airtime_s", "tx_energy_j", "device_energy_j")


def fit_exponent(values: xr.DataArray) -> str:
    """The slope a of log mean over log K, values [device_count, trial], as in "mean ~ K^a"."""
    mean = values.mean("trial")
    known = mean.values > 0
    if known.sum() < 2:
        return "-"
    slope = np.polyfit(np.log(mean[COUNT].values[known]), np.log(mean.values[known]), 1)[0]
    return f"{round(slope, 2) + 0.0:g}"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--variables", help="names with commas; default: accuracy, error, costs")
    parser.add_argument("--out", type=Path, help="draw it: PNG, PDF or SVG")
    parser.add_argument("--csv", type=Path, help="write the values of every trial")
    args = parser.parse_args()
    ds = flatten_points(
        swap_to_coordinate(open_result_at(args.result, args.sel), COUNT), keep=COUNT
    )
    own = [name for name in (find_main_variable(ds), *COSTS) if name in ds]
    names = args.variables.split(",") if args.variables else own
    values = {name: select_end_total(ds, name) for name in names}
    titles = {n: f"{n} [{u}]" if (u := ds[n].attrs["units"]) != "1" else n for n in names}
    print(f"Mean ± standard deviation of {ds.sizes['trial']} trials at their end, by devices K;")
    print("the last row: a in K^a, fitted to the means")
    for i, point in enumerate(ds["point"].values):
        print_head(str(point), "devices", *titles.values())
        for k, count in enumerate(ds[COUNT].values):
            print_row(
                count,
                *(format_mean_std(v.isel(point=i, device_count=k).values) for v in values.values()),
            )
        print_row("growth", *(fit_exponent(v.isel(point=i)) for v in values.values()))
    table = xr.Dataset(values, attrs=ds.attrs).reset_coords(drop=True)
    if args.csv:
        table.to_dataframe(dim_order=["point", COUNT, "trial"]).to_csv(args.csv)
    if args.out:
        draw_panels(table.assign_coords({COUNT: ds[COUNT]}), [(n, COUNT) for n in names], args.out)


if __name__ == "__main__":
    command(main)
