"""What `otafl show` prints of a result: what ran, how far, and the values at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table

from otafl.results import final

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


def print_summary(dataset: xr.Dataset, console: Console | None = None) -> None:
    """Prints a combined dataset in the console's width."""
    console = console or Console(highlight=False, markup=False)
    for line in headlines(dataset):
        console.print(line)
    columns, left_out = _fitting(dataset, console.width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in columns:
        table.add_column(title.replace("_", " "), justify="right", overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print("\nend of each trial, mean ± standard deviation over trials")
    if left_out:
        console.print(f"no room in this terminal: {', '.join(left_out)}")


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


def _fitting(dataset: xr.Dataset, width: int) -> tuple[dict[str, list[str]], list[str]]:
    """Columns title -> cells, a cell for each point: the coordinates, and as many variables as
    `width` holds, one at least; and the names of those left out."""
    columns, left_out, values = _coordinates(dataset), [], 0
    used = sum(_width(title, cells) for title, cells in columns.items())
    for name in SHOWN:
        if name not in dataset or not bool(dataset[name].notnull().any()):
            continue
        cells = _means(dataset, name)
        used += _width(name, cells)
        if values and used > width:
            left_out.append(name)
        else:
            columns[name] = cells
            values += 1
    return columns, left_out


def _coordinates(dataset: xr.Dataset) -> dict[str, list[str]]:
    points = dataset["final_round"]
    columns = {}
    for axis, dim in enumerate(points.dims):
        names = [str(name) for name in dataset.coords if dataset[name].dims == (dim,)]
        # the label of a joint axis repeats what its coordinates say
        for name in [n for n in names if n != dim] or names:
            values = dataset[name].values
            columns[name] = [_text(values[at[axis]]) for at in np.ndindex(points.shape)]
    return columns


def _means(dataset: xr.Dataset, name: str) -> list[str]:
    values = final(dataset, name)
    if "device" in values.dims:
        values = values.sum("device", min_count=1)
    values = values.transpose(*dataset["final_round"].dims, "trial").compute()
    return [spread(row) for row in values.values.reshape(-1, values.sizes["trial"])]


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
    """To so many significant digits, without an exponent where that stays short."""
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, digits - 1 - size)}f}" if -4 < size < 6 else f"{value:.{digits}g}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, np.floating) else str(value)


def _width(title: str, cells: list[str]) -> int:
    """Titles are folded at their words; three columns of padding."""
    return max(map(len, [*title.split("_"), *cells])) + 3
