"""Which personalised methods survive a fading uplink: points above training alone by method, power
policy, channel knowledge and SNR, at the steps that are best on validation data.

    otafl sweep studies/personal/personal_fading.yaml
    otafl sweep studies/personal/personal_fading_own_steps.yaml
    otafl sweep studies/personal/personal_fading_own_steps_ends.yaml
    otafl sweep studies/personal/personal_fading_server.yaml
    python -m studies.personal.fading [results] [--figure personal_fading.png]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
LARGEST, SMALLEST, OWN_END = " l", " s", " o"
"""What is behind an accuracy at the largest and at the smallest step of what is sent, and at an end
of a method's own steps.
"""
OWN_STEPS = ("personal_fading_own_steps", "personal_fading_own_steps_ends")
"""Results of APFL and FedRep at more steps of their own parts."""
OWN = "personal_learning_rate"
ENDS = ("end_round", "stop_round", "diverged_round")
"""How trials end."""
TOLD = [-40, -30, 10]
"""SNRs of the tables [dB]; the figure has two more."""
USUAL = 0.2
"""The own step of APFL and FedRep in the first result."""
ABOVE = "points above training alone, ± half the 95 % interval"
WHOLE = 45.0
"""Points of full colour in the figure."""


def get_personal_variable(name: str) -> str:
    """What stands for a method's personal model: of FedAvg the fine-tuned one."""
    return "tuned_own" if name == "fedavg" else "personal_own"


def read_steps(label: str) -> tuple[float, float]:
    """Read a method's own step, 0 of training alone, and the step of what it sends."""
    given = {key: float(value) for key, value in re.findall(r"(\w+)=([\d.e-]+)", label)}
    own = given.pop(OWN, 0.0)
    sent = given.get("learning_rate", given.get("factor_learning_rate"))
    return (0.0, own) if sent is None else (own, sent)


def open_methods(results: Path) -> dict[str, xr.Dataset]:
    """Open each method's points, [algorithm, ...] with the largest own and sent step first."""
    parts: dict[str, list[xr.Dataset]] = {}
    for file in ("personal_fading", *OWN_STEPS):
        ds = open_result(results, file)
        ds = ds.assign_coords(power=[str(one).partition("(")[0] for one in ds["power"].values])
        names = [str(label).partition("(")[0] for label in ds["algorithm"].values]
        for name in dict.fromkeys(names):
            points = ds.isel(algorithm=[i for i, one in enumerate(names) if one == name])
            kind = get_personal_variable(name)
            accuracies = (f"{kind}_{of}_accuracy" for of in ("test", "validation"))
            parts.setdefault(name, []).append(points[[*accuracies, *ENDS]])
    whole = {name: xr.concat(some, "algorithm") for name, some in parts.items()}
    return {name: ds.isel(algorithm=order_points(ds)) for name, ds in whole.items()}


def order_points(ds: xr.Dataset) -> list[int]:
    """Return the places of a method's points from the largest steps to the smallest."""
    steps = [read_steps(str(label)) for label in ds["algorithm"].values]
    return sorted(range(len(steps)), key=lambda place: [-step for step in steps[place]])


def select_best(name: str, points: xr.Dataset) -> xr.Dataset:
    """Select `accuracy` [..., trial] in percent at the steps that are best on validation samples.

    The largest steps are first, and taken where several are equal. `own` and `sent` are the steps,
    and `mark` says which of them is at an end of those that were tried.
    """
    steps = [read_steps(str(label)) for label in points["algorithm"].values]
    kind = get_personal_variable(name)
    validation = select_end_total(points, f"{kind}_validation_accuracy").mean("trial").fillna(0)
    best = validation.round(6).argmax("algorithm")  # equal means, but for rounding, are equal
    accuracy = 100 * select_end_total(points, f"{kind}_test_accuracy").isel(algorithm=best)
    chosen = xr.Dataset({"accuracy": accuracy}).drop_vars("algorithm")
    for step, values in zip(("own", "sent", "mark"), describe_steps(steps), strict=True):
        chosen[step] = xr.DataArray(np.array(values), dims="algorithm")[best]
    return chosen


def describe_steps(
    steps: Sequence[tuple[float, float]],
) -> tuple[list[float], list[float], list[str]]:
    """Return own steps, sent steps and the marks of ends."""
    owns = [own for own, _ in steps]
    marks = []
    for own, sent in steps:
        beside = [other for at, other in steps if at == own]
        mark = LARGEST if sent == max(beside) else SMALLEST if sent == min(beside) else ""
        is_end = own in (min(owns), max(owns)) and len({*owns}) > 1
        marks.append(mark + OWN_END * is_end)
    return owns, [sent for _, sent in steps], marks


def print_own_steps(points: dict[str, xr.Dataset], methods: dict[str, xr.Dataset]) -> None:
    """Print the chosen own and sent steps, and what the choice of an own step gains."""
    levels = [f"{value:g} dB" for value in TOLD]
    searched = [name for name, one in methods.items() if len({*one["own"].values.flat}) > 1]
    head = ("method", "power", *levels)
    print_head(f"Points above the own step {USUAL:g}; own step, step of what is sent", *head)
    for name in searched:
        labels = points[name]["algorithm"].values
        usual = [i for i, label in enumerate(labels) if read_steps(str(label))[0] == USUAL]
        before = select_best(name, points[name].isel(algorithm=usual))["accuracy"]
        for power in methods[name]["power"].values:
            both = (methods[name], before)
            at = [one.sel(power=power, snr_db=TOLD).isel(variance=0) for one in both]
            gains = map(format_gain, compute_gain(at[0]["accuracy"], at[1]))
            pairs = zip(gains, *(at[0][key].values for key in ("own", "sent")), strict=True)
            print_row(name, power, *(f"{gain}; {own:g}, {sent:g}" for gain, own, sent in pairs))


def format_gain(gain: np.ndarray) -> str:
    mean, low, high = gain
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


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
    ds = ds.sel(server_learning_rate=[0.1, 1, 10, 100])
    steps = ds["server_learning_rate"].values
    rates = (f"{step:g}" for step in steps)
    print_head("Personal models, %, by the server's step", "method", "at", *rates)
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
    points = open_methods(args.results)
    methods = {name: select_best(name, one) for name, one in points.items()}
    powers = [str(one) for one in methods[ALONE]["power"].values]
    snr_db = methods[ALONE]["snr_db"].values
    levels = [f"{value:g} dB" for value in TOLD]
    print_head("Digits: points above training alone, gbma", "method", *levels)
    here = select_cells(methods, "gbma", 0)
    for name, one in here.items():
        if name != ALONE:
            one = one.sel(snr_db=TOLD)
            gains = compute_gain(one["accuracy"], here[ALONE]["accuracy"].sel(snr_db=TOLD))
            cells = zip(map(format_gain, gains), one["mark"].values, strict=True)
            print_row(name, *(f"{gain}{mark}" for gain, mark in cells))
    print_own_steps(points, methods)
    ends = [(power, level) for power in powers[:2] for level in snr_db[-2:]]
    columns = (f"{power}, {level:g} dB" for power, level in ends)
    print_head("Points that errors of what is known of channels cost", "method", *columns)
    for name, one in methods.items():
        if name == ALONE:
            continue
        at = [one["accuracy"].sel(power=power, snr_db=level) for power, level in ends]
        costs = (compute_gain(part.isel(variance=0), part.isel(variance=1)) for part in at)
        print_row(name, *map(format_gain, costs))
    print_server(open_result(args.results, "personal_fading_server"))
    draw(methods, powers, args.figure)


if __name__ == "__main__":
    command(main)
