"""What it cost to reach an accuracy: rounds, seconds, bandwidth, symbols and joules, for each point
of any result, and the accuracy drawn against joules and seconds.

    python scripts/cost_to_accuracy.py results/quickstart.nc --target 0.8 --out cost.png
"""

from __future__ import annotations

from pathlib import Path

from tables import command, draw_panels, make_parser, open_result_at, print_head, print_row

import otafl
from otafl.analysis.overhead import select_soonest
from otafl.analysis.points import flatten_points
from otafl.analysis.summary import format_mean_std, format_number
from otafl.results.coordinates import get_long_name

EFFORT = {
    "round": "rounds",
    "sim_time_s": "seconds",
    "airtime_s": "airtime, s",
    "bandwidth_time": "airtime x bandwidth, Hz s",
    "uplink_symbols": "symbols",
    "side_symbols": "side symbols",
    "device_symbols": "symbols x devices",
}
ENERGY = {"energy_j": "all causes", "tx_energy_j": "radiated"}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--target", type=float, default=0.8, help="default %(default)s")
    parser.add_argument("--variable", default="test_accuracy", help="default %(default)s")
    parser.add_argument("--tune", metavar="AXIS", help="keep the best of an axis, by validation")
    parser.add_argument("--csv", type=Path, help="write the costs of every trial")
    parser.add_argument("--out", type=Path, help="draw it against joules and seconds")
    args = parser.parse_args()
    ds = open_result_at(args.result, args.sel)
    ds = flatten_points(select_soonest(ds, args.tune, args.target) if args.tune else ds)
    costs = otafl.compute_cost_to_reach(ds, args.variable, args.target)
    energy = dict(ENERGY)
    for cause in costs["cause"].values if "cause" in costs else ():
        energy[f"cause_{cause}"] = str(cause)
        costs[f"cause_{cause}"] = costs["device_energy_j"].sel(cause=cause, drop=True)
    if "cause" not in costs:
        energy["compute_energy_j"] = "compute"
    best = ds[args.variable].max("round").mean("trial")
    trials = [f"{n} of {costs.sizes['trial']}" for n in costs["round"].count("trial").values]
    print(f"{get_long_name(ds, args.variable)} at or above {args.target:g}: first record there")
    for title, names in {"Effort": EFFORT, "Joules of all devices": energy}.items():
        names = {name: said for name, said in names.items() if name in costs}
        print_head(title, "point", "trials", "best", *names.values())
        for i, point in enumerate(ds["point"].values):
            cells = [format_mean_std(costs[name].isel(point=i).values) for name in names]
            print_row(point, trials[i], format_number(float(best[i])), *cells)
    print("\nMean ± standard deviation over the trials that got there; best: mean of the highest.")
    if args.csv:
        table = costs.drop_dims("cause", errors="ignore").reset_coords(drop=True)
        table.to_dataframe(dim_order=["point", "trial"]).to_csv(args.csv)
    if args.out:
        against = ["sim_time_s"]
        if "device_energy_j" in ds:
            about = {"units": "J", "long_name": "energy drawn by all devices"}
            over = [dim for dim in ("device", "cause") if dim in ds["device_energy_j"].dims]
            ds["energy_j"] = ds["device_energy_j"].sum(over, min_count=1)
            ds["energy_j"].attrs = about
            against = ["energy_j", *against]
        draw_panels(ds, [(args.variable, x) for x in against], args.out, args.target)


if __name__ == "__main__":
    command(main)
