"""Paired tests between the choices of a sweep, a table an axis."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.paired import MIN_PAIRS, build_pair_table, compare_pairs
from otafl.analysis.points import find_main_variable, is_numeric, list_axes
from otafl.plots.overviews import unzip_axis
from otafl.results.coordinates import get_long_name

MAX_ROWS = 100
"""Comparisons of a larger table are left to `otafl compare`."""


MAX_TESTS = 3_000
"""Tests of an axis; more are not computed, because their correction leaves none below any level."""


class PairTable(NamedTuple):
    """Table of paired tests of the values of one axis with the first.

    Parameters
    ----------
    rows : texts of a comparison each.
    left_out : comparisons that are not shown.
    """

    title: str
    caption: str
    titles: list[str]
    rows: list[list[str]]
    left_out: int


def build_comparisons(ds: xr.Dataset) -> list[PairTable]:
    """Test the main variable along each axis of choices, where there are pairs enough."""
    if ds.sizes["trial"] < MIN_PAIRS:
        return []
    ds, variable = unzip_axis(ds), find_main_variable(ds)
    found = []
    for axis in list_axes(ds):
        values = ds[axis].values
        if is_numeric(ds[axis]) or not 1 < len(np.unique(values)) == len(values):
            continue
        if ds["final_round"].size > MAX_TESTS:
            continue
        tests = compare_pairs(ds, variable, axis)
        if int(tests["pairs"].max()) < MIN_PAIRS:
            continue
        table = build_pair_table(tests)
        titles, rows = table.titles, table.rows
        name = get_long_name(ds, axis)
        said = (
            f"Differences of {get_long_name(ds, variable)} from {name} {tests.attrs['baseline']}, "
            "mean over n pairs of trials with common random numbers. p is corrected by Holm over "
            f"all {len(rows)} rows."
        )
        left_out = max(0, len(rows) - MAX_ROWS)
        found.append(PairTable(f"By {name}", said, titles, rows[:MAX_ROWS], left_out))
    return found
