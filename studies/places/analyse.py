"""Data by place in a hall and a street: accuracy of near and far devices by uplink,
with the joules of each and who is heard.

    for s in places places_ends; do otafl sweep studies/places/$s.yaml; done
    python -m studies.places.analyse [results] [--figure places.png]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
import yaml
from matplotlib import pyplot as plt

import otafl
from otafl.plots.map import map_data
from studies.common.looks import TYPE, compute_half_interval
from studies.common.tables import (
    choose_step,
    command,
    format_points,
    join_grids,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

PLACES = ("hall", "street")
ROWS = (
    "ci",
    "gbma",
    "pre_scaler",
    "tci",
    "tci, 1/p",
    "tci 0.01",
    "tci 0.01, 1/p",
    "packets",
    "packets, 1/p",
)
"""Rows of the scenario's `zip`."""
BASE = 2
"""The row of `pre_scaler`, from which points are."""
MORE = [0, 1, 7, 8]
"""Rows that have two more steps in `places_ends.yaml`."""


def find_near(ds: xr.Dataset) -> xr.DataArray:
    """Find the nearer half of the devices: bool, with dims (channel, trial, device)."""
    tree = yaml.safe_load(ds.attrs["scenario"])
    places = {key: tree[key] for key in ("name", "devices", "channel", "seed", "trials")}
    places["sweep"] = {"channel": tree["sweep"]["channel"]}
    scenario = otafl.load_scenario(places)
    found = []
    for trial in ds["trial"].values:
        drop = map_data(scenario, "channel", {"trial": int(trial)})
        distance = np.hypot(drop["east_m"], drop["north_m"])
        found.append(distance < distance.median("device"))
    return xr.concat(found, "trial").drop_vars(["trial", "channel"], errors="ignore")


def find_best(ds: xr.Dataset) -> xr.Dataset:
    """Accuracies of near and far devices, and cost, at each point's best step on validation data.

    `steps` has the step, and a star at an end of its grid. A trial that diverged is a guess.
    """
    near, own = find_near(ds), read_end(ds, "device_own_test_accuracy")
    joules = ds["tx_energy_j"].isel(round=-1)
    values = {
        "near": own.where(near).mean("device"),
        "far": own.where(~near).mean("device"),
        "heard": ds["participants"].isel(round=slice(1, None)).mean("round"),
        "never": (joules == 0).sum("device"),
        "joules": joules.sum("device"),
    }
    choice, steps = choose_step(read_end(ds, "validation_accuracy"))
    return xr.Dataset(values).isel(server_learning_rate=choice).assign(steps=steps)


def print_accuracy(best: xr.Dataset) -> None:
    """Print accuracies, and at strength 1 the points of near and far devices above `pre_scaler`."""
    for c, place in enumerate(PLACES):
        heads = (f"strength {value:g}; step" for value in best["strength"].values[:-1])
        apart = ("near, strength 1", "far, strength 1", "step")
        print_head(f"In the {place}: accuracy; points", "uplink", *heads, *apart)
        for row, name in enumerate(ROWS):
            ours, base = (best.isel(channel=c, zip=at) for at in (row, BASE))
            cells = []
            for i in range(2):
                cells.append(f"{float(ours['far'][i].mean()):.3f}; {ours['steps'].values[i]}")
            for half in ("near", "far"):
                one = ours[half][2]
                gain = f"; {format_points(one, base[half][2])}" * (row != BASE)
                cells.append(f"{float(one.mean()):.3f}{gain}")
            print_row(name, *cells, ours["steps"].values[2])


def print_cost(best: xr.Dataset) -> None:
    """Print who is heard, and joules, with classes that belong to the place."""
    print_head("Devices heard a round, and never, of 20; nJ radiated by all", "uplink", *PLACES)
    for row, name in enumerate(ROWS):
        ones = (
            best[["heard", "never", "joules"]].isel(channel=c, strength=-1, zip=row).mean("trial")
            for c in range(2)
        )
        cells = (f"{one.heard:.1f}; {one.never:.1f}; {1e9 * one.joules:.3g}" for one in ones)
        print_row(name, *cells)


def print_gains(best: xr.Dataset) -> None:
    """Print points at strength 1: near above far, all above `pre_scaler`, and what weights gain."""
    halves = {"near": best["near"], "far": best["far"], "all": (best["near"] + best["far"]) / 2}
    columns = [f"{place}, {of}" for place in PLACES for of in ("gap", "all", *halves)]
    print_head("Points: near above far; all; weights: near, far, all", "uplink", *columns)
    for row, name in enumerate(ROWS):
        cells = []
        for c in range(2):
            near, far, both = (one.isel(channel=c, strength=-1) for one in halves.values())
            cells += [format_points(near[row], far[row]), format_points(both[row], both[BASE])]
            for one in (near, far, both):
                cells.append(format_points(one[row], one[row - 1]) if "1/p" in name else "")
        print_row(name, *cells)


def draw(best: xr.Dataset, figure: Path) -> None:
    """Draw accuracies of near and far devices where classes belong to the place, by uplink."""
    plt.rcParams.update(TYPE)
    drawing, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
    at = np.arange(len(ROWS))
    for c, place in enumerate(PLACES):
        for half, shift, colour in (("near", -0.12, "#0072B2"), ("far", 0.12, "#D55E00")):
            one = best[half].isel(channel=c, strength=-1).transpose("zip", "trial")
            mean, half_width = one.mean("trial"), compute_half_interval(one)
            label = f"{half} devices"
            axes[c].errorbar(
                mean, at + shift, xerr=half_width, fmt="o", color=colour, capsize=3, label=label
            )
        axes[c].set(title=place, xlabel="accuracy on own test samples", xlim=(0, 1))
        axes[c].grid(alpha=0.3)
    axes[0].set_yticks(at, ROWS)
    axes[0].invert_yaxis()
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    drawing.savefig(figure, dpi=150)
    print(f"\nfigure: {figure}")


def main() -> None:
    args = parse_study_arguments(__doc__, "places.png")
    ends = open_result(args.results, "places_ends").assign_coords(zip=MORE)
    parts = [open_result(args.results, "places"), ends]
    best = find_best(join_grids(parts, "server_learning_rate", "outer"))
    print_accuracy(best)
    print_cost(best)
    print_gains(best)
    draw(best, args.figure)


if __name__ == "__main__":
    command(main)
