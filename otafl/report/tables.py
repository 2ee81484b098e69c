"""Tables of a report: the values at the end, a row a point, and paired tests between choices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr

from otafl.analysis.paired import MIN_PAIRS, build_pair_table, compare_pairs
from otafl.analysis.points import find_main_variable, get_unit, is_numeric, list_axes
from otafl.analysis.rows import TextTable
from otafl.analysis.summary import SHOWN
from otafl.analysis.tables import build_grid, build_text_table
from otafl.plots.overviews import unzip_axis
from otafl.results.coordinates import get_long_name
from otafl.results.end_values import SUMMED_DIMS
from otafl.results.variables import GUESSES, SUMS, find_metric

MAX_ROWS = 300
"""Rows of a longer table are left to `otafl table` and `otafl compare`."""
MAX_TESTS = 3_000
"""Tests of an axis; more are not computed, because their correction leaves none below any level."""
COSTS = ("s", "J", "symbol", "bit", "W")
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
SCORES = ("majority_accuracy", "excess_risk", "minimum_risk")
"""Variables that stand beside the metrics."""


@dataclass(frozen=True)
class PageTable:
    """Table of the page.

    Parameters
    ----------
    table : titles and the rows that are shown.
    left_out : number of rows that are not shown.
    meanings : name of a variable -> what it is.
    """

    title: str
    table: TextTable
    left_out: int
    meanings: dict[str, str] = field(default_factory=dict)


def build_value_tables(ds: xr.Dataset) -> list[PageTable]:
    """Make tables of accuracy and loss, of cost, and of the rest.

    Variables that are missing or zero everywhere are left out. Of a result without a sweep the
    variables are the rows.
    """
    groups: dict[str, list[str]] = {"Accuracy and loss": [], "Cost": [], "Link and model": []}
    for name in dict.fromkeys((*SHOWN, *map(str, ds.data_vars))):
        if name not in ds or name in NOT_SHOWN:
            continue
        taken = {"round", *(SUMMED_DIMS if name in SUMS else ())}
        if set(ds[name].dims) - taken == {"trial", *list_axes(ds)}:
            groups[_choose_group(ds, name)].append(name)
    found = []
    for title, names in groups.items():
        grids = {name: build_grid(ds, name) for name in names}
        names = [name for name, one in grids.items() if np.nan_to_num(one.values).any()]
        if not names:
            continue
        grid = build_grid(ds, names)
        shown = replace(grid, rows=grid.rows[:MAX_ROWS], values=grid.values[:MAX_ROWS])
        table = build_text_table(shown)
        if not list_axes(ds):
            rows = [list(pair) for pair in zip(table.titles, table.rows[0], strict=True)]
            table = TextTable(table.caption, ["variable", "value"], rows, table.frame)
        meanings = {name: _describe(ds, name) for name in names}
        found.append(PageTable(title, table, len(grid.rows) - len(shown.rows), meanings))
    return found


def build_comparisons(ds: xr.Dataset) -> list[PageTable]:
    """Test the main variable along each axis of choices, where there are pairs enough."""
    ds, variable, found = unzip_axis(ds), find_main_variable(ds), []
    if ds.sizes["trial"] < MIN_PAIRS or ds["final_round"].size > MAX_TESTS:
        return []
    for axis in list_axes(ds):
        values = ds[axis].values
        if is_numeric(ds[axis]) or not 1 < len(np.unique(values)) == len(values):
            continue
        tests = compare_pairs(ds, variable, axis)
        name = get_long_name(ds, axis)
        base = f"{name} {tests.attrs['baseline']}"
        if int(tests["pairs"].max()) >= MIN_PAIRS:
            table = build_pair_table(tests, get_long_name(ds, variable), base)
            shown = replace(table, rows=table.rows[:MAX_ROWS])
            left_out = len(table.rows) - len(shown.rows)
            found.append(PageTable(f"By {name}", shown, left_out))
    return found


def _choose_group(ds: xr.Dataset, name: str) -> str:
    if find_metric(name) or name in SCORES:
        return "Accuracy and loss"
    counted = name in ("exchanged_parameters", "training_macs")
    return "Cost" if get_unit(ds[name]) in COSTS or counted else "Link and model"


def _describe(ds: xr.Dataset, name: str) -> str:
    meaning = f"{SUMS[name]}, sum over devices" if name in SUMS else get_long_name(ds, name)
    return f"{meaning} [{get_unit(ds[name])}]" if get_unit(ds[name]) else meaning
