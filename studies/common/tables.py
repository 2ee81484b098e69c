"""What the scripts share: opening a result, rows of Markdown, a command line that explains errors,
and figures of several panels.
"""

from __future__ import annotations

import argparse
import csv
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

import otafl

if TYPE_CHECKING:
    from otafl.scenario import Point


CLASSES = 10
"""Classes of the data sets of committed results."""


def open_result(results: Path, name: str) -> xr.Dataset:
    """The result of a scenario: the folder that `otafl sweep` wrote, or a single file."""
    path, folder = find_file(results, f"{name}.nc"), results / name
    return open_file(folder if path.parent == results and folder.is_dir() else path)


def find_file(results: Path, name: str) -> Path:
    """The path of a file in a folder of results or, of `studies`, in the data of a study."""
    return next(iter(sorted(results.glob(f"*/data/{name}"))), results / name)


def write_lines(path: Path, names: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Write a small result as a CSV file, below a line of names."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([names, *lines])


def read_lines(path: Path) -> list[dict[str, str]]:
    """Read what `write_lines` wrote; UserError if the file is not there."""
    if not path.is_file():
        raise otafl.UserError(f"{path}: no such file; run the script that computes it first")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def open_file(path: Path) -> xr.Dataset:
    """The result in a file or folder, with its trials that diverged as guesses."""
    return add_guesses(otafl.open_results(path))


def add_guesses(result: xr.Dataset) -> xr.Dataset:
    """Add the accuracies of a guess to a result of before otafl recorded them.

    Where the number of classes of a device is not in the scenario, a personal model guesses among
    all classes, which counts less than a guess among its own.
    """
    from otafl.scenario import restore_tree

    if "accuracy_guess" in result:
        return result
    data = restore_tree(dict(result.attrs))["data"]
    classes = CLASSES - len((data.get("server") or {}).get("classes") or ())
    held = data["partition"].get("classes_per_device") or classes
    of_trial = xr.ones_like(result["final_round"] * result["trial"], float)
    return result.assign(accuracy_guess=of_trial / classes, own_accuracy_guess=of_trial / held)


def open_grids(
    results: Path, names: Sequence[str], over: str, join: Literal["exact", "outer"] = "exact"
) -> xr.Dataset:
    """The results of scenarios that differ in the values of one setting, as one in their order.

    join: whether all have the same other values ("exact"), or what did not run is NaN ("outer").
    """
    return join_grids([open_result(results, name) for name in names], over, join)


def join_grids(
    parts: Sequence[xr.Dataset], over: str, join: Literal["exact", "outer"] = "exact"
) -> xr.Dataset:
    """The results that differ in the values of one setting, as one in their order."""
    shared = sorted(set.intersection(*({*map(str, one.data_vars)} for one in parts)))
    kept = [one[shared] for one in parts]
    return xr.concat(kept, over, join=join, coords="minimal", compat="override").sortby(over)


def find_ends(ds: xr.Dataset, over: str) -> tuple[xr.DataArray, xr.DataArray]:
    """The least and the largest value of a setting that ran, at each point of the other axes."""
    ran = ds[over].where(ds["final_round"].notnull())
    return ran.min(over), ran.max(over)


def read_end(ds: xr.Dataset, name: str) -> xr.DataArray:
    """A variable at the end of each trial; a diverged one counts as `count_diverged` says."""
    from otafl.results.end_values import count_diverged, select_at_end

    return select_at_end(count_diverged(ds, [name]), name)


def print_row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


def print_head(title: str, *columns: str) -> None:
    print(f"\n{title}\n")
    print_row(*columns)
    print("|" + "---|" * len(columns))


def expand_points(result: xr.Dataset) -> list[Point]:
    """The points of a result's scenario."""
    return list(_expand(str(result.attrs["scenario"]), str(result.attrs["scenario_hash"])))


@functools.lru_cache(maxsize=8)
def _expand(scenario: str, scenario_hash: str) -> list[Point]:
    from otafl.scenario import restore_tree
    from otafl.scenario.loading import expand

    stored = {"scenario": scenario, "scenario_hash": scenario_hash}
    return expand(otafl.load_scenario(restore_tree(stored)))


def classify_budgets(result: xr.Dataset) -> dict[str, str]:
    """Each power policy's label -> whether it keeps its budget in every round ("peak"), on the
    "average" over fading, or not at all ("none").
    """
    return {
        str(one.coords["power"]): one.scenario.power.power_constraint
        for one in expand_points(result)
    }


def count_ideal_symbols(result: xr.Dataset, biases: int) -> xr.DataArray:
    """Reals that a device sends at each point on the ideal route: the biases of algorithms whose
    `bias_mode` is ideal, which `compute_symbols_per_round` leaves out. By the points of a zip.
    """
    modes = [getattr(one.scenario.algorithm, "bias_mode", "ota") for one in expand_points(result)]
    return xr.DataArray([biases * (mode == "ideal") for mode in modes], dims="zip")


def compute_gain(values: xr.DataArray, base: xr.DataArray) -> np.ndarray:
    """Mean of values - base over pairs of trials, and the ends of its 95 % interval, [..., 3]."""
    from otafl.analysis.paired import compare_values

    found = compare_values(values, base)
    return np.stack([found[key].values for key in ("difference", "low", "high")], -1)


def format_points(values: xr.DataArray, base: xr.DataArray, decimals: int = 1) -> str:
    """Write what an accuracy gains over another in points: mean, ends of the paired interval."""
    mean, low, high = (f"{one:+.{decimals}f}" for one in 100 * compute_gain(values, base))
    return f"{mean} [{low}, {high}]"


def make_study_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the argument `results`, a folder; `doc` is the script's docstring."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n\n")[0])
    where = "folder of results; `studies` for the committed ones; default %(default)s"
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help=where)
    return parser


def parse_study_arguments(doc: str | None, figure: str | None = None) -> argparse.Namespace:
    """What a study's script is told: the folder `results`, and the file `figure` to draw into, or
    the folder `figures`. `doc` is the script's docstring.
    """
    parser = make_study_parser(doc)
    if figure:
        parser.add_argument("--figure", type=Path, default=Path(figure))
    else:
        parser.add_argument("--figures", type=Path, default=Path("."), help="folder to draw into")
    return parser.parse_args()


def make_parser(doc: str | None, default: str | None = None) -> argparse.ArgumentParser:
    """A parser with the arguments `result` and `--sel`; `doc` is the script's docstring."""
    about, _, example = (doc or "").partition("\n\n")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, epilog=example, formatter_class=shape)
    said = "a result file, or the folder of a sweep"
    given: dict[str, Any] = {"nargs": "?", "default": Path(default)} if default else {}
    said += "; default %(default)s" if default else ""
    parser.add_argument("result", type=Path, help=said, **given)
    shown = "one value of a dim; several times"
    parser.add_argument("--sel", metavar="DIM=VALUE", action="append", help=shown)
    return parser


def command(main: Callable[[], None]) -> None:
    """Runs a script's main function; what the user can mend is one message, and exit code 2."""
    try:
        main()
    except otafl.UserError as error:
        program = "/".join(Path(sys.argv[0]).parts[-2:])
        print(f"{program}: error: {error}", file=sys.stderr)
        sys.exit(2)


def open_result_at(path: Path, sel: Sequence[str] | None) -> xr.Dataset:
    """A result, at the values of `--sel dim=value`."""
    from otafl.cli.app import parse_selection
    from otafl.results.coordinates import pick

    ds = otafl.open_results(path)
    for name, value in parse_selection(list(sel or [])).items():
        ds = pick(ds, name, value)
    return ds


def interpolate_at_cost(
    ds: xr.Dataset,
    name: str,
    spent: xr.DataArray,
    budget: xr.DataArray,
    guess: xr.DataArray | float | None = None,
) -> xr.DataArray:
    """An accuracy where so much has been spent, on a straight line between records; at the end of
    the run, where that was less. A trial that diverged counts as a guess, of a loss as `guess`.
    """
    from otafl.results.end_values import select_final

    guess = ds["accuracy_guess"] if guess is None else guess

    def read(spent: np.ndarray, values: np.ndarray, budget: float) -> float:
        there = np.isfinite(spent) & np.isfinite(values)
        return float(np.interp(budget, spent[there], values[there])) if there.any() else np.nan

    read_along = {"input_core_dims": [["round"], ["round"], []], "vectorize": True}
    read_at = xr.apply_ufunc(read, spent.load(), ds[name].load(), budget, **read_along)
    return read_at.where(select_final(ds, name).notnull(), guess)


def tune_at_cost(ds: xr.Dataset, spent: xr.DataArray, budget: xr.DataArray) -> xr.DataArray:
    """Test accuracy where so much has been spent, of each point's best server's step on validation
    data, with coordinate `steps`: the step, and a star at an end of its grid.
    """
    choice, steps = choose_step(interpolate_at_cost(ds, "validation_accuracy", spent, budget))
    test = interpolate_at_cost(ds, "test_accuracy", spent, budget)
    return test.isel(server_learning_rate=choice).assign_coords(steps=steps)


def choose_step(validation: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Each point's server's step of the best validation accuracy, the mean over trials: its index,
    and the step as text, with a star at an end of its grid.
    """
    step = validation["server_learning_rate"]
    choice = validation.mean("trial").argmax(step.name)
    said = [f"{value:g}" + "*" * (i in (0, step.size - 1)) for i, value in enumerate(step.values)]
    return choice, choice.copy(data=np.array(said)[choice.values])


def draw_panels(
    ds: xr.Dataset, pairs: Sequence[tuple[str, str]], path: Path, line: float | None = None
) -> None:
    """Variables against others over rounds, or against a dim of positive numbers: a panel for each
    pair (y, x), a curve with a band of one standard deviation for each `point`. line: a value that
    every panel marks.
    """
    from matplotlib import pyplot as plt

    from otafl.plots import COLOURS, LINES, curve_data
    from otafl.plots.drawing import save
    from otafl.results.coordinates import get_long_name

    across = min(3, len(pairs))
    down = -(-len(pairs) // across)
    size = (2.0 + 4.5 * across, 4.0 * down + 0.18 * ds.sizes["point"])
    figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[len(pairs) :]:
        axis.set_visible(False)
    for axis, (y, x) in zip(axes.flat, pairs, strict=False):
        drawn = curve_data(ds, y, x, hue="point")
        for i, point in enumerate(ds["point"].values):
            one = drawn.isel(point=i)
            at, mean, std = (one["at"] if "at" in one else one[x]), one["mean"], one["std"]
            style = {"color": COLOURS[i % 7], "linestyle": LINES[(i + i // 7) % 7]}
            axis.plot(at, mean, label=point, **style)
            low = np.maximum(mean - std, 0.1 * mean) if y == "aggregation_nmse" else mean - std
            axis.fill_between(at, low, mean + std, color=style["color"], alpha=0.15, lw=0)
        if line is not None:
            axis.axhline(line, color="0.5", lw=0.8)
        labels = (get_long_name(ds, name) for name in (x, y))
        units = (f" [{u}]" if (u := ds[n].attrs.get("units", "1")) != "1" else "" for n in (x, y))
        xlabel, ylabel = (label + unit for label, unit in zip(labels, units, strict=True))
        axis.set(xlabel=xlabel, ylabel=ylabel)
        if "at" in drawn:
            ends = ds[x].max("round")
            if ends.max() > 100 * ends.min():
                axis.set_xscale("log")
        else:
            axis.set_xscale("log")
            axis.set_xticks(ds[x].values, [f"{value:g}" for value in ds[x].values])
            axis.minorticks_off()
        if y == "aggregation_nmse":
            axis.set_yscale("log", nonpositive="clip")
        axis.grid(alpha=0.3)
    longest = max(len(str(point)) for point in ds["point"].values)
    columns = min(3, max(1, int(size[0] / (0.09 * longest + 0.6))))  # inches of a label
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=columns)
    save(figure, path)
    plt.close(figure)
    print(f"figure: {path}")
