"""What a sweep over protocols, deadlines or power policies comes to in time and energy: accuracy at
the end, its gain on the first row's (points, 95 % interval over pairs of trials), updates used and
lost, joules by cause, and where devices die also how long they live; each at the step size that
validation data favour. A diverged trial counts as a guess.

    for f in deadline_stragglers battery_life; do otafl sweep studies/time_and_energy/$f.yaml; done
    python -m studies.time_and_energy.analyse [results] [--figures folder]
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import sum_over_devices
from studies.common.tables import (
    command,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

STUDIES = ("deadline_stragglers", "battery_life")
LATE = {"drop": "late ones dropped", "next": "late ones in the next slot"}
PLAIN = {"fedavg", "null", "nan"}
OTHER = {"final_round", "learning_rate"}
"""Values, and coordinates, that are not worth saying in a row's name."""


class Lives(NamedTuple):
    """Where more than half of the devices are still there, of each trial; NaN if they stay."""

    seconds: xr.DataArray
    accuracy: xr.DataArray


def name_rows(ds: xr.Dataset, dim: str) -> list[str]:
    """A name for each place along a dim, of all its coordinates."""
    names = [str(c) for c in ds.coords if ds[c].dims == (dim,) and c not in {dim, *OTHER}]
    places = range(ds.sizes[dim])
    return [name_row({name: ds[name].values[i] for name in names or [dim]}) for i in places]


def name_row(row: dict[str, object]) -> str:
    """A row's name; of rounds, what becomes of late devices."""
    said = [f"{value}" for value in row.values() if f"{value}" not in PLAIN]
    if row.get("protocol") != "rounds":
        return ", ".join(one for one in said if one not in LATE)
    deadline = f"{row['deadline_s']}"
    if deadline in PLAIN:
        return "rounds, all"
    return f"rounds, deadline {deadline} s, {LATE[str(row['late'])]}"


def find_lives(best: xr.Dataset) -> Lives:
    """How long more than half of the cell lives, and its accuracy then."""
    present = best["present"]
    lives = present > present.max() / 2
    dies = (~lives & present.notnull()).any("round")
    seconds = best["sim_time_s"].where(lives).max("round").where(dies)
    accuracy = best["test_accuracy"].where(best["sim_time_s"] == seconds).max("round")
    return Lives(seconds, accuracy)


def print_table(title: str, best: xr.Dataset, lives: Lives) -> None:
    """Print a row for each place along the one axis of a result."""
    (dim,) = (str(one) for one in best["final_round"].dims)
    dies = bool(lives.seconds.notnull().any())
    accuracy, joules = read_end(best, "test_accuracy"), read_end(best, "energy")
    base = {dim: 0}
    columns = {"accuracy": 100 * accuracy}
    if dies:
        columns |= {"half gone after, s": lives.seconds, "accuracy then": 100 * lives.accuracy}
    else:
        columns |= {"updates used": read_end(best, "updates_used")}
        columns |= {"lost": read_end(best, "updates_lost")}
    names = name_rows(best, dim)
    heads = list(columns)
    heads.insert(1, f"minus {names[0]}")
    heads[4:4] = ["then minus full"] * dies
    print_head(title, "", *heads, "transmit J", "other J")
    for row, name in enumerate(names):
        here = {dim: row}
        cells = [format_mean_std(values.isel(here).values) for values in columns.values()]
        gained = [accuracy, *[lives.accuracy] * dies]
        points = [format_points(one.isel(here), one.isel(base)) if row else "" for one in gained]
        cells.insert(1, points[0])
        cells[4:4] = points[1:]
        sent = float(joules.isel(here).sel(cause="transmit").mean())
        whole = float(joules.isel(here).sum("cause").mean())
        cells += [f"{sent:.3g}", f"{whole - sent:.3g}"]
        print_row(name, *cells)


def draw(best: xr.Dataset, lives: Lives, path: Path) -> None:
    """Draw the first trial: accuracy by time, and devices by time or accuracy by energy."""
    (dim,) = (str(one) for one in best["final_round"].dims)
    dies = bool(lives.seconds.notnull().any())
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for row, name in enumerate(name_rows(best, dim)):
        style = {"color": f"C{row % 10}", "ls": "-" if row < 10 else "--", "label": name}
        one = best.isel({dim: row, "trial": 0}).dropna("round", subset=["sim_time_s"])
        axes[0].plot(one["sim_time_s"], one["test_accuracy"], **style)
        died = (one["sim_time_s"], one["present"])
        axes[1].plot(
            *(died if dies else (one["energy"].sum("cause"), one["test_accuracy"])), **style
        )
    axes[0].set(xlabel="simulated time (s)", ylabel="test accuracy of the global model")
    if dies:
        axes[1].set(xlabel="simulated time (s)", ylabel="devices that are there")
    else:
        axes[1].set(xlabel="energy of all devices (J)", ylabel="test accuracy", xscale="log")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\nfigure: {path}")


def main() -> None:
    args = parse_study_arguments(__doc__)
    for name in STUDIES:
        print_study(name, open_result(args.results, name), args.figures)


def print_study(name: str, result: xr.Dataset, figures: Path) -> None:
    """Print a table for each value of the second axis of a result, and draw the first one."""
    best = otafl.select_tuned(result, over="learning_rate")
    best = best.assign(energy=sum_over_devices(best["device_energy_j"], {"cause"}))
    lives = find_lives(best)
    _, *others = map(str, best["final_round"].dims)
    for place in np.ndindex(*(best.sizes[dim] for dim in others)):
        at = dict(zip(others, place, strict=True))
        said = ", ".join(f"{dim} {best[dim].values[i]:g}" for dim, i in at.items())
        here = Lives(*(one.isel(at) for one in lives))
        print_table(f"{name}{', ' if said else ''}{said}", best.isel(at), here)
        if not any(place):
            draw(best.isel(at), here, figures / f"{name}.png")


if __name__ == "__main__":
    command(main)
