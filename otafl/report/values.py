"""Make tables of the values at the end of each trial, a row a point of the sweep."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.points import (
    build_labels,
    find_main_variable,
    format_short_label,
    get_unit,
    list_axes,
)
from otafl.analysis.summary import SHOWN, compute_end_values, format_mean_std
from otafl.results.coordinates import get_long_name
from otafl.results.end_values import SUMMED_DIMS, SUMS
from otafl.results.variables import CONTROLS, GUESSES, find_metric

MAX_ROWS = 300
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
    *GUESSES,
)


SCORES = "Accuracy and loss"
"""Title of the table of tests, whatever the metrics of the loss are."""
BESIDE = ("majority_accuracy", "excess_risk", "minimum_risk", *CONTROLS)
"""Variables that stand beside the metrics."""


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


class ReportTable(NamedTuple):
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


def build_tables(ds: xr.Dataset) -> list[ReportTable]:
    """Make tables of accuracy and loss, of cost, and of the rest.

    Variables that are missing or zero everywhere are left out.
    """
    groups: dict[str, list[str]] = {SCORES: [], "Cost": [], "Link and model": []}
    ends = {}
    for name in dict.fromkeys((*SHOWN, *map(str, ds.data_vars))):
        if name in ds and _is_end_value(ds, name):
            ends[name] = compute_end_values(ds, name)
            if np.nan_to_num(ends[name]).any():
                groups[_choose_group(ds, name)].append(name)
    names, points = build_labels(ds, list_axes(ds), units=False)
    keys = [format_short_label(ds[name], name) for name in names]
    found = []
    for title, members in groups.items():
        columns = [_describe_column(ds, name) for name in members]
        cells = [[format_mean_std(trials) for trials in ends[name][:MAX_ROWS]] for name in members]
        if members and title == SCORES:
            columns.insert(0, Column("trials", "trials", "", "trials with a value"))
            counts = np.isfinite(compute_end_values(ds, find_main_variable(ds))).sum(1)
            cells.insert(0, [str(count) for count in counts[:MAX_ROWS]])
        by_point = zip(points, zip(*cells, strict=True), strict=False)  # of the first points
        rows = [(list(point), list(row)) for point, row in by_point]
        if rows:
            found.append(ReportTable(title, keys, columns, rows, len(points) - len(rows)))
    return found


def _is_end_value(ds: xr.Dataset, name: str) -> bool:
    """Return whether a variable has one number per trial, at the end."""
    taken = {"round", *(SUMMED_DIMS if name in SUMS else ())}
    return name not in NOT_SHOWN and set(ds[name].dims) - taken == {"trial", *list_axes(ds)}


def _choose_group(ds: xr.Dataset, name: str) -> str:
    if find_metric(name) or name in BESIDE:
        return SCORES
    counted = name in ("exchanged_parameters", "training_macs")
    return "Cost" if get_unit(ds[name]) in DIMENSIONED or counted else "Link and model"


def _describe_column(ds: xr.Dataset, name: str) -> Column:
    meaning = f"{SUMS[name]}, sum over devices" if name in SUMS else get_long_name(ds, name)
    units = get_unit(ds[name])
    title = format_short_label(ds[name], name).removesuffix(f" [{units}]")
    return Column(name, title, units, meaning)
