"""Seconds and joules to an accuracy, an axis' values beside each other, at the step that gets there
soonest on validation data; a star marks the ends of the steps tried, beyond which it may be less.
Steps beyond the ends are read from results of the same name and `_ends` beside it, if there.
With --figure also the accuracy against joules and seconds, at one value of the axis.

    for f in studies/time_and_energy/cost_to_accuracy*.yaml; do otafl sweep $f; done
    python -m studies.time_and_energy.cost_by_axis results/cost_to_accuracy [--by snr_db]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

import otafl
from otafl.analysis.overhead import select_soonest
from otafl.analysis.points import spell_joint_axis, swap_to_coordinate
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import sum_over_devices
from studies.common.tables import (
    command,
    draw_panels,
    find_ends,
    join_grids,
    make_parser,
    open_result_at,
    print_head,
    print_row,
)

TIMED = "Simulated seconds; step chosen"
COSTS = {"sim_time_s": TIMED, "energy_j": "Joules", "tx_energy_j": "Joules radiated"}
STEP = "learning_rate"
LABELS = ("transport", "power", "codec")
ENDS = ("_ends", "_more_ends")
NAMES = {
    "over_the_air, gbma, identity": "sum over the air, GBMA",
    "over_the_air, ci, identity": "sum over the air, CI",
    "over_the_air, tci, identity": "sum over the air, truncated CI",
    "over_the_air, cotaf, identity": "sum over the air, COTAF",
    "digital, full, identity": "packets of all coordinates, 32 bits",
    "digital(max_symbols=1000000.0), full, qsgd(bits=4, norm=max, bucket=512)": (
        "packets of all coordinates, 4 bits, bounded"
    ),
}
"""Point of `studies/time_and_energy/cost_to_accuracy.yaml` -> its name in the figure."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--by", metavar="AXIS", default="snr_db", help="default %(default)s")
    parser.add_argument("--target", type=float, default=0.8, help="default %(default)s")
    parser.add_argument("--figure", type=Path, help="draw accuracy against joules and seconds")
    parser.add_argument("--at", type=float, default=0.0, help="value drawn; default %(default)s")
    args = parser.parse_args()
    every = open_with_ends(args.result, args.sel)
    least, most = find_ends(every, STEP)
    every = every.assign(least=least, most=most)
    ds = swap_to_coordinate(select_soonest(every, STEP, args.target), args.by)
    ds = spell_joint_axis(ds).rename(zip="point").transpose("point", args.by, ...)
    costs = otafl.compute_cost_to_reach(ds, "test_accuracy", args.target)
    chosen = ds[STEP].where(costs["reached"].sum("trial") > 0)
    is_end = np.any([ds[STEP] == ds[end] for end in ("least", "most")], axis=0)
    cells = {title: map_values(costs[name].values, format_value) for name, title in COSTS.items()}
    steps = map_values(np.stack([chosen, is_end], -1), format_step)
    joined = (zip(*rows, strict=True) for rows in zip(cells[TIMED], steps, strict=True))
    cells[TIMED] = [["; ".join(pair) for pair in row] for row in joined]
    for title, rows in cells.items():
        print_head(title, f"point; {args.by}", *(f"{value:g}" for value in ds[args.by].values))
        for point, row in zip(ds["point"].values, rows, strict=True):
            print_row(point, *row)
    if args.figure:
        drawn = ds.sel({args.by: args.at})
        drawn = drawn.sel(round=drawn["round"] > 0)
        drawn = drawn.assign_coords(point=[name_point(str(one)) for one in drawn["point"].values])
        drawn["energy_j"] = sum_over_devices(drawn["device_energy_j"])
        drawn["energy_j"].attrs = {"units": "J", "long_name": "energy drawn by all devices"}
        pairs = [("test_accuracy", x) for x in ("energy_j", "sim_time_s")]
        draw_panels(drawn, pairs, args.figure, args.target)


def open_with_ends(path: Path, sel: list[str] | None) -> xr.Dataset:
    """Open a result, and the steps beyond the ends of its grid where they have been run."""
    every = open_result_at(path, sel)
    for end in ENDS:
        more = path.with_name(f"{path.stem}{end}{path.suffix}")
        if more.exists():
            every = join_rows(every, open_result_at(more, sel))
    return every


def join_rows(every: xr.Dataset, more: xr.Dataset) -> xr.Dataset:
    """Join steps of some rows and axis values; a row has the number of the one of its labels."""
    rows = {label: number for number, label in enumerate(list_labels(every))}
    more = more.assign_coords(zip=[rows[label] for label in list_labels(more)])
    new = ~np.isin(more[STEP].values, every[STEP].values)
    return join_grids([every, more.isel({STEP: new})], STEP, "outer")


def list_labels(ds: xr.Dataset) -> list[tuple[str, ...]]:
    """List the labels of each row of the joint axis."""
    return list(zip(*(map(str, ds[name].values) for name in LABELS), strict=True))


def map_values(values: np.ndarray, say: Callable[[np.ndarray], str]) -> list[list[str]]:
    """Write the values [row, column, ...] of each cell."""
    return [[say(cell) for cell in row] for row in values]


def format_step(values: np.ndarray) -> str:
    """Write a step, and a star if it is an end of those tried; "-" if no trial got there."""
    step, is_end = values
    return "-" if np.isnan(step) else f"{step:g}{'*' * bool(is_end)}"


def name_point(label: str) -> str:
    """Return a point's name in the figure; the label itself if it has none."""
    label = label.replace("(gain_threshold=0)", "").replace("gain_threshold=0, ", "")
    return next((name for key, name in NAMES.items() if label.startswith(key)), label)


def format_value(values: np.ndarray) -> str:
    """Mean ± deviation of the trials that got there, and how many these are where not all did."""
    count = int(np.isfinite(values).sum())
    few = f" ({count} of {len(values)})" if count < len(values) else ""
    return f"{format_mean_std(values)}{few}" if count else "not reached"


if __name__ == "__main__":
    command(main)
