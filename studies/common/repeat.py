"""One point of each committed result, computed again and compared with the stored numbers.

    python -m studies.common.repeat [studies] [--only TEXT] [--dear]
    python -m studies.common.repeat studies --table

The scenario that a result stores is cut to its cheapest point and the rounds up to the first
evaluation after the start. Later rounds change no earlier number, and trials are independent up to
the last bits, so the stored numbers must come out again: with one trial or, if it differs, with all
trials side by side. If it still differs, a further run with other trials side by side and the
instructions of an older processor measures what rounding alone changes; of a dear point with
--dear only. The findings are written to `repeats.csv` in the folder, and a slow test repeats the
cheap ones.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import shlex
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

import otafl
from otafl.running.memory import bound_seconds
from otafl.scenario import Point, Scenario, restore_tree
from otafl.scenario.loading import build_axes, expand
from studies.common.tables import command, print_head, print_row

TABLE = "repeats.csv"
OF_WHOLE_RUNS = {
    *("wall_time_s", "end_round", "stop_round", "stop_time_s", "stop_energy_j", "stop_symbols"),
    "diverged_round",
}
"""Variables of the machine, and of where a whole run ends."""
EQUAL, FEW = 1e-6, 5e-3
"""Relative difference up to which stored numbers, in single precision, are equal; and accuracies,
which a few samples near a tie change on another processor."""
WIDER = 10.0
"""A difference of up to so many times that of rounding is explained by rounding."""
SIDE_BY_SIDE = 10
"""Trials of the second run of a cheap point; of a dearer one fewer, at least two."""
SECOND_ARITHMETIC = Path(__file__).parent / "second_arithmetic.env"
"""Environment of the second run, as a shell reads it."""
DEAR_S = 4.5
"""Seconds of a point above which there is a second run with --dear only."""


@dataclass(frozen=True)
class Finding:
    """What a repeated point of a result showed.

    Parameters
    ----------
    file : path below the folder of results.
    point : its number in the sweep.
    round : the last round that was repeated.
    seconds : of one processor, with reading.
    state : "equal", "rounding" if rounding explains the difference, or "differs".
    worst : the most different variable, of those that are not in `other`.
    difference : relative difference of `worst`.
    by_rounding : difference of `worst` by rounding alone; nan if it was not measured.
    other : variables that differ although the accuracies and losses are equal.
    """

    file: str
    point: int
    round: int
    seconds: float
    state: str
    worst: str
    difference: float
    by_rounding: float
    other: str = ""


def read_findings(folder: Path) -> dict[str, Finding]:
    """Read the findings in a folder, by file."""
    path = folder / TABLE
    if not path.is_file():
        return {}
    kinds = {"point": int, "round": int, "seconds": float, "difference": float}
    kinds["by_rounding"] = float
    with path.open(newline="") as file:
        rows = [{k: kinds.get(k, str)(v) for k, v in row.items()} for row in csv.DictReader(file)]
    return {row["file"]: Finding(**row) for row in rows}


def write_findings(folder: Path, found: dict[str, Finding]) -> None:
    """Write the findings of the results that are in a folder."""
    with (folder / TABLE).open("w", newline="") as file:
        names = [field.name for field in fields(Finding)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(found[n]) for n in sorted(found) if (folder / n).is_file())


def select_point(ds: xr.Dataset, scenario: Scenario, number: int) -> xr.Dataset | None:
    """Select the first trial of a point; None if a reduced result does not have the point."""
    axes = {dim: coordinates[dim] for dim, coordinates in build_axes(scenario).items()}
    places = np.unravel_index(number, [len(axis.values) for axis in axes.values()] or [1])
    for place, (dim, axis) in zip(places, axes.items(), strict=False):
        if dim in ds.dims and ds.sizes[dim] == len(axis.values):
            ds = ds.isel({dim: int(place)})
        elif dim in ds.dims:
            labels = ds[dim].values.tolist()
            if axis.values[int(place)] not in labels:
                return None
            ds = ds.isel({dim: labels.index(axis.values[int(place)])})
    return ds.isel(trial=0)


def find_first_round(stored: xr.Dataset) -> int | None:
    """Find the first evaluated round after the start; None if the point has no numbers."""
    names = [str(n) for n, v in stored.items() if "round" in v.dims and n not in OF_WHOLE_RUNS]
    names = [n for n in names if "accuracy" in n or "loss" in n] or names
    there = np.zeros(stored.sizes["round"], bool)
    for name in names:
        others = [dim for dim in stored[name].dims if dim != "round"]
        there |= stored[name].notnull().any(others).values
    rounds = stored["round"].values[there]
    return next((int(number) for number in rounds if number > 0), None)


def bound_cost(scenario: Scenario, rounds: int) -> float:
    """Bound the seconds of a trial of so many rounds from below; 0 if that is not known."""
    try:
        return bound_seconds(scenario) * rounds / scenario.training.rounds
    except otafl.UserError:
        return 0.0


def list_points(
    ds: xr.Dataset, number: int | None = None
) -> Iterator[tuple[float, int, Point, xr.Dataset, int]]:
    """List the points that a result has: bound of the cost, number, point, numbers, last round.

    Only the point of a number, if one is given.
    """
    scenario = otafl.load_scenario(restore_tree(ds.attrs))
    known: dict[str, float] = {}
    for point in expand(scenario):
        if number not in {None, point.index}:
            continue
        stored = select_point(ds, scenario, point.index)
        last = None if stored is None else find_first_round(stored)
        if stored is None or last is None:
            continue
        one = point.scenario
        parts = (one.algorithm, one.model, one.transport, one.codec, one.devices, one.training)
        key = repr((parts, last))
        if key not in known:
            known[key] = bound_cost(one, last)
        yield known[key], point.index, point, stored, last


def compute_again(point: Point, last: int, trials: int = 1) -> xr.Dataset:
    """Compute the first trial of a point up to a round, with others side by side.

    The processor is the one at hand: a result may be of a GPU.
    """
    tree: dict[str, Any] = point.scenario.model_dump(exclude_unset=True)
    tree["training"] = {**tree["training"], "rounds": last}
    tree["trials"] = trials
    tree["engine"] = {**tree.get("engine", {}), "device": "auto"}
    tree.pop("output", None)
    return otafl.run(tree).isel(trial=0)


def compare(stored: xr.Dataset, again: xr.Dataset, last: int) -> dict[str, float]:
    """Compare what both have: variable -> largest relative difference, inf if one was lost."""
    found = {}
    for name, old in stored.items():
        if name in OF_WHOLE_RUNS or name not in again or old.dtype.kind not in "fiub":
            continue
        new = again[name]
        extra = [dim for dim in new.dims if dim not in old.dims]
        new = new.sum(extra, min_count=1) if extra else new
        if "round" in old.dims:
            both = [n for n in old["round"].values if n <= last and n in new["round"].values]
            old, new = old.sel(round=both), new.sel(round=both)
        # a reduced result is padded to the largest number of devices or levels
        old = old.isel({d: slice(new.sizes[d]) for d in old.dims if new.sizes[d] < old.sizes[d]})
        there = np.isfinite(old.values.astype(float))
        before, after = old.values[there].astype(float), new.values[there].astype(float)
        scale = np.abs(before).max(initial=0.0) or 1.0
        gap = float(np.abs(after - before).max(initial=0.0)) / scale
        found[str(name)] = gap if np.isfinite(gap) else np.inf
    return found


def read_second_arithmetic() -> dict[str, str]:
    """Read the environment in which the same program rounds as on an older processor."""
    lines = SECOND_ARITHMETIC.read_text().splitlines()
    pairs = [shlex.split(line, comments=True) for line in lines]
    return dict(words[0].split("=", 1) for words in pairs if words)


def compute_rounded(point: Point, last: int, trials: int) -> xr.Dataset:
    """Compute the same as `compute_again`, with other rounding, in a program of its own."""
    before = dict(os.environ)
    os.environ.update(read_second_arithmetic())
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(compute_again, (point, last, trials))
    finally:
        os.environ.clear()
        os.environ.update(before)


def list_learning(names: Iterable[str]) -> list[str]:
    """List the variables that say what a model has learned."""
    return [name for name in names if any(word in name for word in ("accuracy", "loss", "risk"))]


def bound_gap(name: str) -> float:
    """Return the relative difference up to which values of a variable are equal."""
    return FEW if "accuracy" in name else EQUAL


def find_excess(gaps: dict[str, float]) -> list[str]:
    """Find the variables of learning that differ, or any if a result has none of these."""
    return [name for name in list_learning(gaps) or gaps if gaps[name] > bound_gap(name)]


def judge(gaps: dict[str, float], rounding: dict[str, float]) -> dict[str, Any]:
    """Return the fields of a finding that say how a point differs, and why it may."""
    learning = list_learning(gaps)
    # an accuracy counts few samples, so its own may be zero by chance
    of_model = max((rounding.get(name, 0.0) for name in learning), default=0.0)
    rounding = rounding | {name: of_model for name in learning if rounding}
    excess = {
        name: gap / max(bound_gap(name), WIDER * rounding.get(name, 0.0))
        for name, gap in gaps.items()
    }
    other: list[str] = []
    if learning and all(excess[name] <= 1 for name in learning):
        other = sorted(name for name in excess if excess[name] > 1)
    left = [name for name in gaps if name not in other]
    worst = max(left, key=lambda name: (excess[name], gaps[name]))
    equal = all(gaps[name] <= bound_gap(name) for name in left)
    return {
        "state": "equal" if equal else "rounding" if excess[worst] <= 1 else "differs",
        "worst": worst,
        "difference": float(f"{gaps[worst]:.2g}"),
        "by_rounding": float(f"{rounding.get(worst, np.nan):.2g}"),
        "other": " ".join(other),
    }


def repeat(path: Path, folder: Path, number: int | None = None, dear: bool = False) -> Finding:
    """Repeat a point of a result, the cheapest if no number is given.

    `dear`: also measure the difference by rounding of a dear point, with one trial.
    """
    began = time.process_time()
    ds = otafl.open_results(path)
    _, _, point, stored, last = min(list_points(ds, number), key=lambda one: one[:2])
    for trials in (1, ds.sizes["trial"]):  # the last bits depend on the size of a batch
        again = compute_again(point, last, trials)
        gaps, rounding = compare(stored, again, last), {}
        seconds = time.process_time() - began
        if not find_excess(gaps):
            break
    if number is None and find_excess(gaps) and (dear or seconds < DEAR_S):
        trials = int(min(SIDE_BY_SIDE, max(2, DEAR_S / seconds))) if seconds < DEAR_S else 1
        rounding = compare(again, compute_rounded(point, last, trials), last)
    name = str(path.relative_to(folder))
    return Finding(name, point.index, last, round(seconds, 1), **judge(gaps, rounding))


def print_tables(found: dict[str, Finding]) -> None:
    """Print how many results repeat, and those that do not to single precision."""
    print_head("Committed results, one point of each computed again", "state", "results")
    for state in ("equal", "rounding", "differs"):
        print_row(state, sum(one.state == state for one in found.values()))
    print_head(
        "Results that do not repeat to single precision",
        *("result", "state", "after rounds", "most different", "difference", "by rounding"),
    )
    for one in sorted(found.values(), key=lambda one: (one.state, one.file)):
        if one.state != "equal":
            least = "" if np.isnan(one.by_rounding) else f"{one.by_rounding:.1g}"
            print_row(
                f"`{one.file}`",
                *(one.state, one.round, f"`{one.worst}`", f"{one.difference:.1g}", least),
            )
    print_head("Variables that differ though the models are equal", "variable", "results")
    for name in sorted({name for one in found.values() for name in one.other.split()}):
        print_row(f"`{name}`", sum(name in one.other.split() for one in found.values()))


RECORDED = {
    "scenario, seed, versions of otafl and its packages, processor": (),
    "also checksum of the data, hash of otafl's source, sizes of batches": ("inputs", "batches"),
    "also the commit": ("inputs", "batches", "commit"),
}
"""What results record in words -> keys of the origins of their points."""
ALWAYS = ("scenario", "seed", "otafl_version", "torch_version", "numpy_version", "device_name")


def print_records(folder: Path) -> None:
    """Print how many results record what made them."""
    counts = dict.fromkeys(RECORDED, 0)
    for path in sorted(folder.rglob("*.nc")):
        with h5py.File(path) as file:
            attributes = dict(file.attrs)
        origins = json.loads(attributes.get("origins", "[]"))
        for text, keys in RECORDED.items():
            is_known = all(name in attributes for name in ALWAYS)
            of_points = bool(origins) and all(one.get(key) for one in origins for key in keys)
            counts[text] += is_known and (of_points or not keys)
    print_head("What the committed results record", "recorded", "results")
    for text, count in counts.items():
        print_row(text, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("studies"))
    parser.add_argument("--only", metavar="TEXT", default="", help="files with this in the path")
    parser.add_argument("--dear", action="store_true", help="measure rounding at any cost")
    parser.add_argument("--table", action="store_true", help="print the findings so far")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of settings that were removed
    found = read_findings(args.folder)
    if args.table:
        print_tables(found)
        print_records(args.folder)
        return
    for path in sorted(args.folder.rglob("*.nc")):
        if args.only in str(path):
            one = repeat(path, args.folder, dear=args.dear)
            found[one.file] = one
            print(one, flush=True)
            write_findings(args.folder, found)


if __name__ == "__main__":
    command(main)
