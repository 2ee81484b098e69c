"""Tables of the values at the end of each trial, a row a point of the sweep."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.figures import shown
from otafl.analysis.summary import SHOWN, spread
from otafl.plots.overviews import main_variable
from otafl.plots.quantities import SUMS, at_the_end

MOST_ROWS = 300
"""Points of a longer sweep are left to `otafl show --csv`."""
DIMENSIONED = ("s", "J", "symbol", "bit", "W")
"""Units of what learning costs."""
NOT_SHOWN = ("diverged_round", "end_round", "stop_round")


class Column(NamedTuple):
    """A variable: its name in the result and without its units, units ("" for none), what it is."""

    name: str
    title: str
    units: str
    meaning: str


class Table(NamedTuple):
    """keys: names of the coordinates in front. rows: (coordinates, cells). left_out: points that
    are not shown."""

    title: str
    keys: list[str]
    columns: list[Column]
    rows: list[tuple[list[str], list[str]]]
    left_out: int


def tables(ds: xr.Dataset) -> list[Table]:
    """Accuracy and loss, cost, and the rest; without variables that are missing or zero
    everywhere."""
    keys, points = _points(ds)
    groups: dict[str, list[str]] = {"Accuracy and loss": [], "Cost": [], "Link and model": []}
    names = [name for name in dict.fromkeys((*SHOWN, *map(str, ds.data_vars))) if name in ds]
    ends = {name: _ends(ds, name) for name in names if _belongs(ds, name)}
    for name, trials in ends.items():
        if np.nan_to_num(trials).any():
            groups[_group(ds, name)].append(name)
    found = []
    for title, names in groups.items():
        columns = [Column("trials", "trials", "", "trials with a value")] if title[0] == "A" else []
        cells = [[spread(row) for row in ends[name]] for name in names]
        if columns:
            counts = np.isfinite(_ends(ds, main_variable(ds))).sum(1)
            cells = [[str(count) for count in counts], *cells]
        columns += [_column(ds, name) for name in names]
        rows = (
            [
                (point, list(row))
                for point, row in zip(points, zip(*cells, strict=True), strict=True)
            ]
            if names
            else []
        )
        if rows:
            left_out = max(0, len(rows) - MOST_ROWS)
            found.append(Table(title, keys, columns, rows[:MOST_ROWS], left_out))
    return found


def _belongs(ds: xr.Dataset, name: str) -> bool:
    """Whether it is one number a trial at the end."""
    dims = set(at_the_end(ds, name, list(map(str, ds["final_round"].dims))).dims)
    return name not in NOT_SHOWN and "trial" in dims and dims <= {"trial", *ds["final_round"].dims}


def _ends(ds: xr.Dataset, name: str) -> np.ndarray:
    """[points, trials], points in the order of the axes."""
    axes = [str(dim) for dim in ds["final_round"].dims]
    values = at_the_end(ds, name, axes)
    missing = {dim: ds.sizes[dim] for dim in axes if dim not in values.dims}
    values = values.expand_dims(missing).transpose(*axes, "trial").compute()
    return np.asarray(values.values).reshape(-1, values.sizes["trial"])


def _points(ds: xr.Dataset) -> tuple[list[str], list[list[str]]]:
    """Names of the coordinates, and their texts at every point."""
    points = ds["final_round"]
    columns: dict[str, list[str]] = {}
    for axis, dim in enumerate(points.dims):
        names = [str(name) for name in ds.coords if ds[name].dims == (dim,)]
        for name in [one for one in names if one not in ("zip", "final_round")] or [str(dim)]:
            texts = [shown(value) for value in ds[name].values]
            units = str(ds[name].attrs.get("units", "1"))
            title = _title(name, units) + (f" [{units}]" if units not in ("", "1") else "")
            columns[title] = [texts[place[axis]] for place in np.ndindex(points.shape)]
    rows = list(map(list, zip(*columns.values(), strict=True))) if columns else [[]]
    return list(columns), rows


def _title(name: str, units: str) -> str:
    """A name in words, without the units that end it."""
    short = name.removesuffix(f"_{units.lower()}") if units else name
    return short.replace("_", " ")


def _group(ds: xr.Dataset, name: str) -> str:
    if name.endswith(("accuracy", "loss")):
        return "Accuracy and loss"
    units = ds[name].attrs.get("units", "1")
    counted = name in ("exchanged_parameters", "training_macs")
    return "Cost" if units in DIMENSIONED or counted else "Link and model"


def _column(ds: xr.Dataset, name: str) -> Column:
    attrs = ds[name].attrs
    meaning = str(attrs.get("long_name", name.replace("_", " ")))
    if name in SUMS:
        meaning = f"{SUMS[name]}, sum over devices"
    units = str(attrs.get("units", "1"))
    return Column(name, _title(name, units), "" if units == "1" else units, meaning)
