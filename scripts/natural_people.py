"""Natural people: personalised methods on data with a natural split by people, each at its
best settings on validation data, against training alone, fine-tuned averaging and two controls.

    otafl sweep scenarios/studies/natural_people_tuning.yaml
    otafl sweep scenarios/studies/natural_people.yaml
    python scripts/natural_people.py [results] [--figure natural_people.png]

The people's data are read for the controls of each person (`otafl data get parkinsons`).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import xarray as xr
from looks import TYPE
from matplotlib import pyplot as plt
from scipy import stats
from tables import (
    command,
    expand_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

from otafl.results.end_values import select_end_total

ALONE, TUNED = "local_only", "fedavg, fine-tuned"
LINKS = {
    "ideal": ("ideal uplink", "#0072B2", "o"),
    "over_the_air": ("Rayleigh fading, -20 dB", "#D55E00", "s"),
}
CONTROLS = ("person's mean", "person's line in time")
GUESS = 2
"""Column of the errors of the untrained model, after those of the controls."""


def list_methods(ds: xr.Dataset) -> list[tuple[str, str]]:
    """Name of each point of the joint axis, and start of the variables of its personal model.

    Methods without a personal model are fine-tuned.
    """
    found = []
    for place, label in enumerate(ds["algorithm"].values):
        name = str(label).partition("(")[0]
        own = bool(ds["personal_own_test_mse"].isel(zip=place).notnull().any())
        own = own or name in ("tdpfed", "pfedme", "pfedbred")
        found.append((name, "personal_own") if own else (f"{name}, fine-tuned", "tuned_own"))
    return found


def print_settings(ds: xr.Dataset) -> None:
    """Print each method's settings that are best on validation data; `*` marks a grid's end."""
    methods = list_methods(ds)
    print_head("Settings", "method", "points", "best settings", "validation loss")
    for name, kind in dict.fromkeys(methods):
        points = ds.isel(zip=[i for i, one in enumerate(methods) if one[0] == name])
        loss = select_end_total(points, f"{kind}_validation_loss").mean("trial").fillna(np.inf)
        place = int(loss.argmin("zip"))
        said = [dict(re.findall(r"(\w+)=([\d.e-]+)", str(a))) for a in points["algorithm"].values]
        if kind == "tuned_own":
            for one, rate in zip(said, points["fine_tune_learning_rate"].values, strict=True):
                one["fine_tune_learning_rate"] = f"{rate:g}"
        words = []
        for key, value in said[place].items():
            tried = sorted({float(one[key]) for one in said})
            if len(tried) > 1:
                mark = "*" if float(value) in (tried[0], tried[-1]) else ""
                words.append(f"{key.replace('_', ' ')} {value}{mark}")
        print_row(name, points.sizes["zip"], ", ".join(words), f"{float(loss[place]):.4f}")


def read_controls(ds: xr.Dataset, store: Path) -> np.ndarray:
    """Squared errors [person, 3] of the controls and of a guess, on each person's test samples.

    They are read from a file if there is one, so that the figure needs no data of people.
    """
    path = store / "natural_people_controls.csv"
    if path.exists():
        return np.loadtxt(path)
    data = expand_points(ds)[0].scenario.data.read()
    assert data.owner is not None
    assert data.owner_test is not None
    assert data.time is not None
    assert data.time_test is not None
    rows = []
    for person in np.unique(data.owner):
        train, test = data.owner == person, data.owner_test == person
        y, found = data.y_train[train, 0].astype(float), data.y_test[test, 0].astype(float)
        line = np.polyval(np.polyfit(data.time[train], y, 1), data.time_test[test])
        rows.append([((found - at) ** 2).mean() for at in (y.mean(), line, 0.0)])
    np.savetxt(path, rows, "%.6e")
    return np.array(rows)


def read_people(ds: xr.Dataset, guess: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Squared error of each person, mean over trials: link -> method -> [person].

    A trial that diverged has the error of the untrained model.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for link in LINKS:
        own = ds.sel(transport=link).isel(round=-1)
        found[link] = {}
        for place, (name, kind) in enumerate(list_methods(ds)):
            values = own[f"device_{kind}_test_mse"].isel(zip=place).transpose("trial", "device")
            errors = np.where(np.isfinite(values.values), values.values, guess)
            found[link][name] = errors.mean(0)
    return found


def compare_pairs(own: np.ndarray, base: np.ndarray) -> tuple[float, float, float]:
    """Mean difference over people, and the ends of its 95 % interval."""
    gap = own - base
    half = float(stats.t.ppf(0.975, len(gap) - 1)) * gap.std(ddof=1) / np.sqrt(len(gap))
    return float(gap.mean()), float(gap.mean() - half), float(gap.mean() + half)


def format_pairs(own: np.ndarray, base: np.ndarray) -> str:
    return "{:+.4f} ({:+.4f} to {:+.4f})".format(*compare_pairs(own, base))


def print_results(ds: xr.Dataset, people: dict[str, dict[str, np.ndarray]]) -> None:
    """Print errors and paired differences over people, for both uplinks."""
    diverged = ds["diverged_round"].notnull().sum("trial")
    for link, methods in people.items():
        title = f"Squared error over 42 people, {LINKS[link][0]}, less is better"
        bases = (ALONE, TUNED, CONTROLS[0])
        print_head(title, "method", "error", *(f"minus {one}" for one in bases), "diverged trials")
        order = sorted(methods, key=lambda name: float(methods[name].mean()))
        counts = diverged.sel(transport=link).values
        ends = dict(zip((name for name, _ in list_methods(ds)), counts, strict=True))
        for name in order:
            own = methods[name]
            cells = ["-" if one == name else format_pairs(own, methods[one]) for one in bases]
            print_row(name, f"{own.mean():.4f}", *cells, int(ends.get(name, 0)))


def draw(people: dict[str, dict[str, np.ndarray]], path: Path) -> None:
    """Draw the paired differences to training alone."""
    plt.rcParams.update(TYPE | {"axes.grid": True, "grid.alpha": 0.3})
    figure, axis = plt.subplots(figsize=(10, 5.4), layout="constrained")
    ideal = people["ideal"]
    names = sorted((n for n in ideal if n != ALONE), key=lambda n: -float(ideal[n].mean()))
    for shift, (link, methods) in zip((0.14, -0.14), people.items(), strict=True):
        said, colour, marker = LINKS[link]
        found = np.array([compare_pairs(methods[name], methods[ALONE]) for name in names])
        mean, low, high = found.T
        axis.errorbar(
            *(mean, np.arange(len(names)) + shift),
            xerr=[mean - low, high - mean],
            fmt=marker,
            color=colour,
            capsize=2,
            ms=5,
            label=said,
        )
    axis.set_yticks(range(len(names)), names)
    axis.axvline(0, color="black", lw=1)
    axis.set(xlabel="squared error minus that of training alone (logarithmic beyond 0.01)")
    axis.set_xscale("symlog", linthresh=0.01)
    axis.legend(loc="lower left")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"\nfigure: {path}")


def main() -> None:
    args = parse_study_arguments(__doc__, "natural_people.png")
    ds = open_result(args.results, "natural_people")
    controls = read_controls(ds, args.results)
    people = read_people(ds, controls[:, GUESS])
    for methods in people.values():
        methods |= {name: controls[:, place] for place, name in enumerate(CONTROLS)}
    print_settings(open_result(args.results, "natural_people_tuning"))
    print_results(ds, people)
    draw(people, args.figure)


if __name__ == "__main__":
    command(main)
