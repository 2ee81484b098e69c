"""Which personalised methods survive a fading uplink: points above training alone by method, power
policy, channel knowledge and SNR, at the steps that are best on validation data.

    otafl sweep studies/personal_fading/personal_fading.yaml
    otafl sweep studies/personal_fading/personal_fading_server.yaml
    python -m studies.personal_fading.analyse [results] [--figure personal_fading.png]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import select_end_total
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    compute_gain,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

ALONE = "local_only"
KNOWN = ("channels known", "channels known with errors")
LARGEST, SMALLEST = " l", " s"
"""What is behind an accuracy at the largest and at the smallest step that was tried."""
ABOVE = "points above training alone, ± half the 95 % interval"
WHOLE = 45.0
"""Points of full colour in the figure."""


def get_personal_variable(name: str) -> str:
    """What stands for a method's personal model: of FedAvg the fine-tuned one."""
    return "tuned_own" if name == "fedavg" else "personal_own"


def select_methods(ds: xr.Dataset) -> dict[str, xr.Dataset]:
    """Method -> `accuracy` [..., trial] in percent of its personal model at the step that is best
    on validation samples, and the `mark` of a step at an end of the grid. The largest step is
    first, and taken where several are equal.
    """
    names = [str(label).partition("(")[0] for label in ds["algorithm"].values]
    out = {}
    for name in dict.fromkeys(names):
        points = ds.isel(algorithm=[i for i, one in enumerate(names) if one == name])
        kind = get_personal_variable(name)
        validation = select_end_total(points, f"{kind}_validation_accuracy").mean("trial").fillna(0)
        best = validation.round(6).argmax("algorithm")  # equal means, but for rounding, are equal
        accuracy = 100 * select_end_total(points, f"{kind}_test_accuracy").isel(algorithm=best)
        last = points.sizes["algorithm"] - 1
        mark = xr.where(best == 0, LARGEST, xr.where(best == last, SMALLEST, ""))
        out[name] = xr.Dataset({"accuracy": accuracy, "mark": mark}).drop_vars("algorithm")
    return out


def print_ends(methods: dict[str, xr.Dataset]) -> None:
    """Count the cells, by SNR, whose best step is an end of the grid."""
    levels = methods[ALONE]["snr_db"].values
    print_head("Best step at an end of the grid", "method", *(f"{level:g} dB" for level in levels))
    for name, one in methods.items():
        cells = one["mark"].transpose("snr_db", ...)
        print_row(name, *(f"{int((cell != '').sum())} of {cell.size}" for cell in cells))


def select_cells(methods: dict[str, xr.Dataset], power: str, place: int) -> dict[str, xr.Dataset]:
    """The methods under one power policy and channel knowledge."""
    return {name: one.sel(power=power).isel(variance=place) for name, one in methods.items()}


def draw(methods: dict[str, xr.Dataset], powers: list[str], path: Path) -> None:
    """Points above training alone: a panel for each power policy and channel knowledge."""
    plt.rcParams.update(TYPE | {"font.size": 10})
    size = {"figsize": (12, 10), "sharex": True, "sharey": True, "layout": "constrained"}
    figure, axes = plt.subplots(len(KNOWN), len(powers), **size)
    for (down, across), axis in np.ndenumerate(axes):
        here = select_cells(methods, powers[across], down)
        alone = here.pop(ALONE)["accuracy"]
        gains = np.stack([compute_gain(one["accuracy"], alone) for one in here.values()])
        above, half = gains[..., 0], (gains[..., 2] - gains[..., 1]) / 2
        shown = axis.imshow(above, cmap="RdBu", vmin=-WHOLE, vmax=WHOLE, aspect="auto")
        for (i, j), value in np.ndenumerate(above):
            ink = "white" if abs(value) > 0.6 * WHOLE else "black"
            said = f"{value:+.1f}\n± {half[i, j]:.1f}"
            axis.text(j, i, said, ha="center", va="center", color=ink, linespacing=1.1)
        axis.set_title(f"{powers[across]}, {KNOWN[down]}", fontsize=12)
        axis.set_xticks(range(len(alone)), [f"{value:g}" for value in alone["snr_db"].values])
        axis.set_yticks(range(len(here)), list(here))
    for axis in axes[-1]:
        axis.set_xlabel("SNR [dB]")
    figure.colorbar(shown, ax=axes, shrink=0.6, label=ABOVE)
    figure.savefig(path, dpi=74)


def print_server(ds: xr.Dataset) -> None:
    """Personal models by the server's step."""
    steps = ds["server_learning_rate"].values
    rates = (f"server step {step:g}" for step in steps)
    print_head("Personal models, %, channels known, by the server's step", "method", "at", *rates)
    for label, one in ds.groupby("algorithm"):
        name = str(label).partition("(")[0]
        values = 100 * select_end_total(
            one.squeeze("algorithm"), f"{get_personal_variable(name)}_test_accuracy"
        )
        for power in ds["power"].values:
            for level in ds["snr_db"].values:
                here = values.sel(power=power, snr_db=level)
                cells = (
                    format_mean_std(here.sel(server_learning_rate=step).values) for step in steps
                )
                print_row(name, f"{str(power).partition('(')[0]}, {level:g} dB", *cells)


def main() -> None:
    args = parse_study_arguments(__doc__, "personal_fading.png")
    ds = open_result(args.results, "personal_fading")
    powers = [str(one).partition("(")[0] for one in ds["power"].values]
    ds = ds.assign_coords(power=powers)
    levels = [f"{value:g} dB" for value in ds["snr_db"].values]
    methods = select_methods(ds)
    for place, known in enumerate(KNOWN):
        for power in powers:
            here = select_cells(methods, power, place)
            alone = here[ALONE]["accuracy"]
            print_head(f"Points above training alone, {power}, {known}", "method", *levels)
            for name, one in here.items():
                gains = compute_gain(one["accuracy"], alone)
                print_row(
                    name, *(f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in gains)
                )
    for place, known in enumerate(KNOWN):
        for power in powers:
            print_head(f"Personal models, %, {power}, {known}", "method", *levels)
            for name, one in select_cells(methods, power, place).items():
                values = one["accuracy"].transpose(..., "trial").values
                cells = zip(values, one["mark"].values, strict=True)
                print_row(name, *(f"{format_mean_std(value)}{mark}" for value, mark in cells))
    print_ends(methods)
    ends = [(power, level) for power in powers for level in ds["snr_db"].values[-2:]]
    columns = (f"{power}, {level:g} dB" for power, level in ends)
    print_head("Points that errors of what is known of channels cost", "method", *columns)
    for name, one in methods.items():
        at = [one["accuracy"].sel(power=power, snr_db=level) for power, level in ends]
        costs = (compute_gain(part.isel(variance=0), part.isel(variance=1)) for part in at)
        print_row(name, *(f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in costs))
    print_server(open_result(args.results, "personal_fading_server"))
    draw(methods, powers, args.figure)
    print(f"\nmajority class alone: {100 * float(ds['majority_accuracy'].mean()):.1f} %")


if __name__ == "__main__":
    command(main)
