"""What `otafl show` prints of a result: what ran, how far, and the values at the end."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table

from otafl.core.files import written
from otafl.results.dataset import final

SHOWN = (
    "test_accuracy",
    "personal_own_test_accuracy",
    "tuned_own_test_accuracy",
    "majority_accuracy",
    "local_test_accuracy",
    "personal_test_accuracy",
    "tuned_test_accuracy",
    "mean_test_accuracy",
    "validation_accuracy",
    "personal_own_validation_accuracy",
    "test_loss",
    "train_loss",
    "aggregation_nmse",
    "product_error",
    "product_error_law",
    "consensus_gap",
    "weight_rank",
    "weight_density",
    "stop_round",
    "tx_energy_j",
    "compute_energy_j",
    "airtime_s",
    "sim_time_s",
    "uplink_symbols",
    "compression_actual",
    "compression_nominal",
)
"""Variables worth a column, as many as fit the terminal; energies are sums over devices."""

MOST = 60
FIRST, LAST = 20, 5
"""Of more points than `MOST`, the first and the last so many rows are shown."""


def print_summary(dataset: xr.Dataset, console: Console | None = None, every: bool = False) -> None:
    """Prints a combined dataset in the console's width; of more than `MOST` points the first and
    the last, unless `every`."""
    console = console or Console(highlight=False, markup=False)
    for line in headlines(dataset):
        console.print(line)
    points = dataset["final_round"].size
    hidden = 0 if every or points <= MOST else points - FIRST - LAST
    rows = np.arange(points)
    if hidden:
        rows = np.r_[:FIRST, points - LAST : points]
    columns, left_out = _fitting(dataset, console.width, rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title, width in _widths(columns, console.width).items():
        side: Literal["left", "right"] = "left" if title == "point" else "right"
        table.add_column(title.replace("_", " "), justify=side, overflow="fold", width=width)
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        if hidden and i == FIRST:
            table.add_row(*["..."] * len(columns))
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print("\nend of each trial, mean ± standard deviation over trials")
    if hidden:
        console.print(f"{hidden} points between are not shown; --all shows, --csv FILE writes them")
    if left_out:
        console.print(f"no room in this terminal: {', '.join(left_out)}")


def write_summary(dataset: xr.Dataset, path: Path) -> None:
    """A CSV with a line a point: its coordinates, and of every variable that `SHOWN` names the mean
    and standard deviation (with n - 1) over the trials that have one. Raises UserError."""
    rows = np.arange(dataset["final_round"].size)
    columns: dict[str, Sequence[object]] = {**_coordinates(dataset, rows)}
    for name in _known(dataset):
        trials = _ends(dataset, name)[rows]
        seen = np.isfinite(trials)
        count = seen.sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(seen, trials, 0.0).sum(1) / count
            square = np.where(seen, trials - mean[:, None], 0.0) ** 2
            std = np.sqrt(square.sum(1) / np.where(count > 1, count - 1, np.nan))
        columns |= {name: mean.tolist(), f"{name}_std": std.tolist()}
    with written(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows(
            ["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in row]
            for row in zip(*columns.values(), strict=True)
        )


def headlines(dataset: xr.Dataset) -> list[str]:
    """What ran, with what, how far."""
    about, points = dataset.attrs, dataset["final_round"]
    order = [*points.dims, "trial", "round", "device"]
    dims = ", ".join(f"{dim} {dataset.sizes[dim]}" for dim in order if dim in dataset.sizes)
    lines = [
        f"{about['title']}: scenario {str(about['scenario_hash'])[:12]}, seed {about['seed']}",
        f"otafl {about['otafl_version']}, torch {about['torch_version']}, {about['device_name']}",
        f"dims: {dims}",
    ]
    if not about["complete"]:
        done = int(points.notnull().sum())
        lines.append(f"unfinished: {done} of {points.size} points; the same command resumes it")
    if "diverged_round" in dataset and (lost := int(dataset["diverged_round"].notnull().sum())):
        lines.append(f"diverged: {lost} of the trials, left out of the means")
    return lines


def _fitting(
    dataset: xr.Dataset, width: int, rows: np.ndarray
) -> tuple[dict[str, list[str]], list[str]]:
    """Columns title -> cells, a cell for each of these points: the coordinates, and as many
    variables as `width` holds, one at least; and the names of those left out. Coordinates that
    leave no room for one are joined into one column."""
    columns, left_out, values = _coordinates(dataset, rows), [], 0
    used = sum(_width(title, cells) for title, cells in columns.items())
    for name in _known(dataset):
        cells = [spread(trials) for trials in _ends(dataset, name)[rows]]
        if not values and len(columns) > 1 and used + _width(name, cells) > width:
            columns = {"point": [", ".join(parts) for parts in zip(*columns.values(), strict=True)]}
            used = width
        used += _width(name, cells)
        if values and used > width:
            left_out.append(name)
        else:
            columns[name] = cells
            values += 1
    return columns, left_out


def _known(dataset: xr.Dataset) -> list[str]:
    return [n for n in SHOWN if n in dataset and bool(dataset[n].notnull().any())]


def _coordinates(dataset: xr.Dataset, rows: np.ndarray) -> dict[str, list[str]]:
    points = dataset["final_round"]
    places = np.unravel_index(rows, points.shape) if points.ndim else ()
    columns = {}
    for axis, dim in enumerate(points.dims):
        own = [str(name) for name in dataset.coords if dataset[name].dims == (dim,)]
        names = [name for name in own if name != "final_round"]
        # the label of a joint axis repeats what its coordinates say
        for name in [n for n in names if n != "zip"] or names:
            columns[name] = [_text(value) for value in dataset[name].values[places[axis]]]
    return columns


def _ends(dataset: xr.Dataset, name: str) -> np.ndarray:
    """A variable at the end of each trial: values [points, trials]."""
    values = final(dataset, name)
    if "device" in values.dims:
        values = values.sum("device", min_count=1)
    values = values.transpose(*dataset["final_round"].dims, "trial").compute()
    return values.values.reshape(-1, values.sizes["trial"])


def spread(values: np.ndarray) -> str:
    """Mean ± standard deviation (with n - 1) of the finite values [n], to two digits of the latter
    where that can be written without an exponent."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return "-"
    if len(values) == 1:
        return number(values[0])
    mean, std = values.mean(), values.std(ddof=1)
    if std < 1e-6 * abs(mean):  # the rounding of equal values
        std = 0.0
    places = 1 - math.floor(math.log10(std)) if std else -1
    if 0 <= places <= 6:
        return f"{mean:.{places}f} ± {std:.{places}f}"
    return f"{number(mean)} ± {number(std, 2)}"


def number(value: float, digits: int = 4) -> str:
    """To so many significant digits, without an exponent where that stays short; - for NaN."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, digits - 1 - size)}f}" if -4 < size < 6 else f"{value:.{digits}g}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, np.floating) else str(value)


def _width(title: str, cells: list[str]) -> int:
    """Titles are folded at their words; three columns of padding."""
    return max(map(len, [*title.split("_"), *cells])) + 3


def _widths(columns: dict[str, list[str]], width: int) -> dict[str, int | None]:
    """What each column gets: its cells' width, or its whole title's where all fit in one line; a
    joined column what is left; None where that is too little, and cells are folded."""
    least = {title: _width(title, cells) for title, cells in columns.items()}
    whole = {title: max(len(title) + 3, least[title]) for title in columns}
    if sum(whole.values()) <= width:
        return {title: size - 3 for title, size in whole.items()}
    if sum(least.values()) <= width:
        return {title: size - 3 for title, size in least.items()}
    rest = width - sum(size for title, size in least.items() if title != "point") - 3
    if "point" in columns and rest >= 8:
        return {title: rest if title == "point" else size - 3 for title, size in least.items()}
    return dict.fromkeys(columns)
