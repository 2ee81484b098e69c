"""Seconds and joules to an accuracy, an axis' values beside each other, at the step that gets there
soonest on validation data; a star marks the ends of the steps tried, beyond which it may be less.
With --figure also the accuracy against joules and seconds, at one value of the axis.

    otafl sweep studies/time_and_energy/cost_to_accuracy.yaml
    python -m studies.time_and_energy.cost_by_axis results/cost_to_accuracy [--by snr_db]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import otafl
from otafl.analysis.overhead import select_soonest
from otafl.analysis.points import flatten_points, swap_to_coordinate
from otafl.analysis.summary import format_mean_std
from studies.common.tables import (
    command,
    draw_panels,
    make_parser,
    open_result_at,
    print_head,
    print_row,
)

COSTS = {"sim_time_s": "Simulated seconds", "energy_j": "Joules", "tx_energy_j": "Joules radiated"}
STEP = "learning_rate"
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
    every = open_result_at(args.result, args.sel)
    ds = flatten_points(
        swap_to_coordinate(select_soonest(every, STEP, args.target), args.by),
        keep=args.by,
    )
    ds = ds.transpose("point", args.by, ...)
    costs = otafl.compute_cost_to_reach(ds, "test_accuracy", args.target)
    ends = every[STEP].values[[0, -1]]
    cells = {title: (costs[name].values, format_value) for name, title in COSTS.items()}
    cells["Step chosen"] = ds[STEP].values, lambda step: f"{step:g}{'*' * (step in ends)}"
    for title, (values, say) in cells.items():
        print_head(title, "point", *(f"{args.by} {value}" for value in ds[args.by].values))
        for point, some in zip(ds["point"].values, values, strict=True):
            print_row(point, *map(say, some))
    if args.figure:
        drawn = ds.sel({args.by: args.at})
        drawn = drawn.sel(round=drawn["round"] > 0)
        drawn = drawn.assign_coords(point=[name_point(str(one)) for one in drawn["point"].values])
        drawn["energy_j"] = drawn["device_energy_j"].sum(
            [dim for dim in ("device", "cause") if dim in drawn["device_energy_j"].dims],
            min_count=1,
        )
        drawn["energy_j"].attrs = {"units": "J", "long_name": "energy drawn by all devices"}
        pairs = [("test_accuracy", x) for x in ("energy_j", "sim_time_s")]
        draw_panels(drawn, pairs, args.figure, args.target)


def name_point(label: str) -> str:
    """Return a point's name in the figure; the label itself if it has none."""
    return next((name for key, name in NAMES.items() if label.startswith(key)), label)


def format_value(values: np.ndarray) -> str:
    """Mean ± deviation of the trials that got there, and how many these are where not all did."""
    count = int(np.isfinite(values).sum())
    few = f" ({count} of {len(values)})" if count < len(values) else ""
    return f"{format_mean_std(values)}{few}" if count else "not reached"


if __name__ == "__main__":
    command(main)
