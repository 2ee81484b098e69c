"""What it cost to reach an accuracy: rounds, seconds, bandwidth, symbols and joules, for each point
of any result, and the accuracy drawn against joules and seconds.

    python scripts/cost_to_accuracy.py results/quickstart.nc --target 0.8 --out cost.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import xarray as xr
from matplotlib import pyplot as plt
from tables import head, row

import otafl
from otafl.figures import long_name, save, shown
from otafl.plots import COLOURS, LINES, curve_data
from otafl.summary import number, spread

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
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("result", type=Path, help="a result file, or the folder of a sweep")
    parser.add_argument("--target", type=float, default=0.8, help="default %(default)s")
    parser.add_argument("--variable", default="test_accuracy", help="default %(default)s")
    parser.add_argument("--tune", metavar="AXIS", help="keep the best of an axis, by validation")
    parser.add_argument("--csv", type=Path, help="write the costs of every trial")
    parser.add_argument("--out", type=Path, help="draw it against joules and seconds")
    args = parser.parse_args()
    ds = otafl.open_results(args.result)
    ds = by_point(tuned(ds, args.tune, args.target) if args.tune else ds)
    costs = otafl.to_reach(ds, args.variable, args.target)
    energy = dict(ENERGY)
    for cause in costs["cause"].values if "cause" in costs else ():
        energy[f"cause_{cause}"] = str(cause)
        costs[f"cause_{cause}"] = costs["device_energy_j"].sel(cause=cause, drop=True)
    if "cause" not in costs:
        energy["compute_energy_j"] = "compute"
    best = ds[args.variable].max("round").mean("trial")
    trials = [f"{n} of {costs.sizes['trial']}" for n in costs["round"].count("trial").values]
    print(f"{long_name(ds, args.variable)} at or above {args.target:g}: first record there")
    for title, names in {"Effort": EFFORT, "Joules of all devices": energy}.items():
        names = {name: said for name, said in names.items() if name in costs}
        head(title, "point", "trials", "best", *names.values())
        for i, point in enumerate(ds["point"].values):
            cells = [spread(costs[name].isel(point=i).values) for name in names]
            row(point, trials[i], number(float(best[i])), *cells)
    print("\nMean ± standard deviation over the trials that got there; best: mean of the highest.")
    if args.csv:
        table = costs.drop_dims("cause", errors="ignore").reset_coords(drop=True)
        table.to_dataframe(dim_order=["point", "trial"]).to_csv(args.csv)
    if args.out:
        draw(ds, args.variable, args.target, args.out)
        print(f"figure: {args.out}")


def tuned(ds: xr.Dataset, axis: str, target: float) -> xr.Dataset:
    """Of an axis, at every point of the others, the value that is soonest within a hundredth of the
    target on validation data (a trial may stop before it is there), in the mean over trials."""
    rounds = otafl.to_reach(ds, "validation_accuracy", target - 0.01)["round"]
    late = rounds.fillna(10.0 * float(ds["round"].max()))
    return ds.isel({axis: late.mean("trial").argmin(axis)})


def by_point(ds: xr.Dataset) -> xr.Dataset:
    """The sweep's axes as one dim, labelled by their coordinates."""
    axes = list(ds["final_round"].dims)
    if not axes:
        return ds.expand_dims(point=[str(ds.attrs["title"])])
    names = []
    for axis in axes:  # a joint axis' own label repeats what its coordinates say
        own = [str(n) for n in ds.coords if ds[n].dims == (axis,) and n != "final_round"]
        names += [name for name in own if name != axis] or own
    flat = ds.stack(point=axes).reset_index("point")
    labels = zip(*(flat[name].values for name in names), strict=True)
    return flat.assign_coords(point=[", ".join(map(shown, label)) for label in labels])


def draw(ds: xr.Dataset, variable: str, target: float, path: Path) -> None:
    panels = {"sim_time_s": "simulated time [s]"}
    if "device_energy_j" in ds:
        ds["energy_j"] = ds["device_energy_j"].sum(("device", "cause"), min_count=1)
        panels = {"energy_j": "energy drawn by all devices [J]"} | panels
    size = (2.0 + 4.5 * len(panels), 4.0 + 0.18 * ds.sizes["point"])
    figure, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axis, (x, label) in zip(axes[0], panels.items(), strict=True):
        curves = curve_data(ds, variable, x, hue="point")
        for i, point in enumerate(ds["point"].values):
            at, mean, std = (curves[name].isel(point=i).values for name in ("at", "mean", "std"))
            style = {"color": COLOURS[i % 7], "linestyle": LINES[(i + i // 7) % 7]}
            axis.plot(at, mean, label=point, **style)
            axis.fill_between(at, mean - std, mean + std, color=style["color"], alpha=0.15, lw=0)
        axis.axhline(target, color="0.5", lw=0.8)
        axis.set(xlabel=label, ylabel=long_name(ds, variable))
        ends = ds[x].max("round")
        if ends.max() > 100 * ends.min():
            axis.set_xscale("log")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    save(figure, path)


if __name__ == "__main__":
    main()
