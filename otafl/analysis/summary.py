"""Print a result for `otafl show`: what ran, how far, and the values at the end of trials."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table

from otafl.analysis import cautions
from otafl.analysis.points import (
    MAIN_VARIABLES,
    build_labels,
    find_first_known,
    get_label,
    list_axes,
)
from otafl.core.console import make_console
from otafl.core.suggestions import format_count
from otafl.losses.metrics import list_variables
from otafl.results import origins
from otafl.results.end_values import select_end_total

SUMMARISED = ("test", "personal_own_test", "tuned_own_test", "local_own_test", "validation")
"""Tested models whose metrics of values and tokens are shown."""

SHOWN = (
    "test_accuracy",
    "personal_own_test_accuracy",
    "tuned_own_test_accuracy",
    "majority_accuracy",
    "local_test_accuracy",
    "personal_test_accuracy",
    "tuned_test_accuracy",
    "tx_energy_j",
    "airtime_s",
    "compute_energy_j",
    "sim_time_s",
    "mean_test_accuracy",
    "validation_accuracy",
    "personal_own_validation_accuracy",
    *list_variables(*SUMMARISED, metrics=("mse", "r2", "perplexity")),
    "excess_risk",
    "test_loss",
    "train_loss",
    "aggregation_nmse",
    "product_error",
    "product_error_law",
    "consensus_gap",
    "weight_rank",
    "weight_density",
    "stop_round",
    "uplink_symbols",
    "compression_actual",
    "compression_nominal",
)
"""Variables worth a column, as many as fit the terminal; energies are sums over devices."""

JUDGED_BY = (*MAIN_VARIABLES, "excess_risk", "test_loss", "train_loss")
"""Variables of which the first that a result has is the first column, however narrow it is."""

MAX_POINTS = 60
FIRST, LAST = 20, 5
"""If there are more points than `MAX_POINTS`, these numbers of first and last rows are shown."""


def print_summary(
    dataset: xr.Dataset,
    every: bool = False,
    variables: Sequence[str] | None = None,
) -> None:
    """Print a combined dataset in the console's width, with the table of `print_ends`.

    Raises UserError for a variable that the result does not have, or not once a trial.
    """
    console = make_console()
    for name in variables or ():
        select_end_total(dataset, name)  # refused before anything is printed
    # format the scenario, the versions and the progress of a run
    about, points = dataset.attrs, dataset["final_round"]
    order = [*points.dims, "trial", "round", "device"]
    dims = ", ".join(f"{dim} {dataset.sizes[dim]}" for dim in order if dim in dataset.sizes)
    lines = [
        f"{about['title']}: scenario {str(about['scenario_hash'])[:12]}, seed {about['seed']}",
        f"otafl {about['otafl_version']}, torch {about['torch_version']}, {about['device_name']}",
        f"dims: {dims}",
    ]
    if several := origins.format_mixed_versions(about):
        lines.append(several)
    if not about["complete"]:
        done = int(points.notnull().sum())
        lines.append(f"unfinished: {done} of {points.size} points; the same command resumes it")
    for line in lines:
        console.print(line)
    print_ends(dataset, console, every, variables)


def print_ends(
    dataset: xr.Dataset,
    console: Console | None = None,
    every: bool = False,
    variables: Sequence[str] | None = None,
) -> None:
    """Print the values at the end of the trials, in the console's width.

    Of more than `MAX_POINTS` points the first and the last are shown, unless `every`. variables:
    in as many tables as they need; else those of `SHOWN` for which one table has room. Accuracies
    at chance are named, unless only other variables were asked for.
    """
    console = console or make_console()
    points = dataset["final_round"].size
    hidden = 0 if every or points <= MAX_POINTS else points - FIRST - LAST
    rows = np.r_[:FIRST, points - LAST : points] if hidden else np.arange(points)
    keys, texts = build_labels(dataset, list_axes(dataset), units=False)
    labels, shown = [get_label(dataset, key) for key in keys], [texts[i] for i in rows]
    coordinates = list(zip(labels, zip(*shown, strict=True), strict=True))
    room = console.width - sum(_measure_width(*one) for one in coordinates)
    names = variables
    if names is None:
        main = find_first_known(dataset, JUDGED_BY)
        names = [n for n in dict.fromkeys((main, *SHOWN)) if n and find_first_known(dataset, [n])]
    left_out: list[str] = []
    tables: list[list[tuple[str, Sequence[str]]]] = [[]]
    for name in names:
        ends, title = compute_end_values(dataset, name)[rows], get_label(dataset, name)
        found = [(title, [format_cell(trials) for trials in ends])]
        if name == "airtime_s":  # the median is shown where it differs from the mean by over 1 %
            finite = xr.DataArray(ends, dims=("point", "trial"))
            medians, means = finite.median("trial"), finite.mean("trial")
            if (abs(medians - means) > 0.01 * means).any():
                found.append((f"median {title}", [format_number(one) for one in medians.values]))
        used = sum(_measure_width(*one) for one in (*tables[-1], *found))
        if used > room and tables[-1]:
            if variables is None:
                left_out = list(names)[list(names).index(name) :]
                break
            tables.append([])
        tables[-1] += found
    for columns in tables:
        table = make_table()
        for title, _ in coordinates:
            # folded where there is no room, from the left on; numbers are whole
            table.add_column(title, justify="left", overflow="fold")
        for title, cells in columns:
            width = _measure_width(title, cells) - 3
            table.add_column(textwrap.fill(title, width), justify="right", no_wrap=True)
        cells_of_all = (cells for _, cells in (*coordinates, *columns))
        for i, row in enumerate(zip(*cells_of_all, strict=True)):
            if hidden and i == FIRST:
                table.add_row(*["..."] * len(row))
            table.add_row(*row)
        console.print()
        console.print(table)
    last = f"{dataset['final_round'].max():.0f}"
    if (first := f"{dataset['final_round'].min():.0f}") != last:
        last = f"{first} to {last}"
    is_less = any("(n = " in cell for columns in tables for _, cells in columns for cell in cells)
    console.print(
        f"\nend of each trial (final round {last}), mean ± standard deviation over n = "
        f"{format_count(dataset.sizes['trial'], 'trial')}"
        + ", or fewer where a cell states n"
        * is_less
    )
    for said in cautions.list_cautions(dataset):
        console.print(said)
    if hidden:
        console.print(f"{hidden} points between are not shown; otafl show --all shows them")
    if left_out:
        names = ", ".join(left_out)
        console.print(f"no room in this terminal (otafl show --variables chooses): {names}")
    asked = variables is None or any(name.endswith("accuracy") for name in variables)
    if asked and (guessed := cautions.describe_chance(dataset)):
        console.print(guessed)


def print_environment(dataset: xr.Dataset) -> None:
    """Print what a result was made from, in the console's width: a line each."""
    console = make_console()
    console.print()
    for name, value in origins.list_environment(dataset.attrs):
        # names of files are what somebody wrote
        console.print(" ".join(t if t.isprintable() else repr(t) for t in (f"{name}:", value)))


def compute_end_values(dataset: xr.Dataset, name: str) -> np.ndarray:
    """Return a variable at the end of each trial, [points, trials].

    As of `results.end_values.select_end_total`.
    """
    values = select_end_total(dataset, name).compute()
    return values.values.reshape(-1, values.sizes["trial"])


def compute_moments(values: np.ndarray) -> tuple[float, float, int]:
    """Return mean, standard deviation (with n - 1) and number of the finite values [n].

    The mean of none is NaN, and so is the deviation of one.
    """
    values = values[np.isfinite(values)]
    count = len(values)
    mean = float(values.mean()) if count else math.nan
    return mean, float(values.std(ddof=1)) if count > 1 else math.nan, count


def format_mean_std(values: np.ndarray) -> str:
    """Write mean ± standard deviation of the finite values [n].

    To two digits of the deviation, where that can be written without an exponent.
    """
    mean, std, count = compute_moments(values)
    if count < 2:
        return format_number(mean)
    # a standard deviation, 0 where it is no more than the rounding of equal values
    std = 0.0 if std < 1e-6 * abs(mean) else std
    places = 1 - math.floor(math.log10(std)) if std else -1
    if 0 <= places <= 6:
        return f"{mean:.{places}f} ± {std:.{places}f}"
    return f"{format_number(mean)} ± {format_number(std, 2)}"


def format_cell(values: np.ndarray) -> str:
    """Write `format_mean_std`, and n where not all of the values [n] are finite."""
    count = int(np.isfinite(values).sum())
    return format_mean_std(values) + (f" (n = {count})" if 0 < count < len(values) else "")


def format_number(value: float, digits: int = 4) -> str:
    """Format a number with `digits` significant digits, - for NaN.

    The text has no exponent if it stays short without.
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, digits - 1 - size)}f}" if -4 < size < 6 else f"{value:.{digits}g}"


def make_table(*titles: str) -> Table:
    """Return a table with a line below its head alone."""
    return Table(*titles, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _measure_width(title: str, cells: Sequence[str]) -> int:
    """Return the least width of a column with its padding; titles are folded at their words."""
    return max(map(len, (*title.replace("_", " ").split(), *cells))) + 3
