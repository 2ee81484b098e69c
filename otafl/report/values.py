"""Make tables of the values at the end of each trial, a row a point of the sweep."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.points import axes_of, labels, unit
from otafl.analysis.summary import SHOWN, end_values, spread
from otafl.plots.quantities import main_variable
from otafl.results.ending import ADDED, SUMS

MOST_ROWS = 300
"""Points of a longer sweep are left to `otafl show --csv`."""
DIMENSIONED = ("s", "J", "symbol", "bit", "W")
"""Units of what learning costs."""
NOT_SHOWN = (
    "diverged_round",
    "end_round",
    "stop_round",
    "majority_share",
    "test_samples",
    "own_test_samples",
)


class Column(NamedTuple):
    """Column of a table: a variable.

    Parameters
    ----------
    name : in the result.
    title : the name in words, without its units.
    units : "" for none.
    meaning : what it is.
    """

    name: str
    title: str
    units: str
    meaning: str


class Table(NamedTuple):
    """Table of values.

    Parameters
    ----------
    keys : names of the coordinates in front.
    rows : (coordinates, cells) of a point each.
    left_out : points that are not shown.
    """

    title: str
    keys: list[str]
    columns: list[Column]
    rows: list[tuple[list[str], list[str]]]
    left_out: int


def tables(ds: xr.Dataset) -> list[Table]:
    """Make tables of accuracy and loss, of cost, and of the rest.

    Variables that are missing or zero everywhere are left out.
    """
    groups: dict[str, list[str]] = {"Accuracy and loss": [], "Cost": [], "Link and model": []}
    ends = {}
    for name in dict.fromkeys((*SHOWN, *map(str, ds.data_vars))):
        if name in ds and _belongs(ds, name):
            ends[name] = end_values(ds, name)
            if np.nan_to_num(ends[name]).any():
                groups[_group(ds, name)].append(name)
    names, points = labels(ds, axes_of(ds), units=False)
    keys = [_key(ds, name) for name in names]
    found = []
    for title, members in groups.items():
        columns = [_column(ds, name) for name in members]
        cells = [[spread(trials) for trials in ends[name]] for name in members]
        if members and title == "Accuracy and loss":
            columns.insert(0, Column("trials", "trials", "", "trials with a value"))
            counts = np.isfinite(end_values(ds, main_variable(ds))).sum(1)
            cells.insert(0, [str(count) for count in counts])
        by_point = zip(points, zip(*cells, strict=True), strict=False)
        rows = [(list(point), list(row)) for point, row in by_point]
        if rows:
            left_out = max(0, len(rows) - MOST_ROWS)
            found.append(Table(title, keys, columns, rows[:MOST_ROWS], left_out))
    return found


def _belongs(ds: xr.Dataset, name: str) -> bool:
    """Say whether a variable is one number a trial at the end."""
    taken = {"round", *(ADDED if name in SUMS else ())}
    return name not in NOT_SHOWN and set(ds[name].dims) - taken == {"trial", *axes_of(ds)}


def _key(ds: xr.Dataset, name: str) -> str:
    units = unit(ds[name])
    return _title(name, units) + (f" [{units}]" if units else "")


def _title(name: str, units: str) -> str:
    """Write a name in words, without the units that end it."""
    short = name.removesuffix(f"_{units.lower()}") if units else name
    return short.replace("_", " ")


def _group(ds: xr.Dataset, name: str) -> str:
    if name.endswith(("accuracy", "loss")):
        return "Accuracy and loss"
    counted = name in ("exchanged_parameters", "training_macs")
    return "Cost" if unit(ds[name]) in DIMENSIONED or counted else "Link and model"


def _column(ds: xr.Dataset, name: str) -> Column:
    meaning = str(ds[name].attrs.get("long_name", name.replace("_", " ")))
    if name in SUMS:
        meaning = f"{SUMS[name]}, sum over devices"
    units = unit(ds[name])
    return Column(name, _title(name, units), units, meaning)
