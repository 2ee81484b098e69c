"""What is worth a first look: which variable, and which axes where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from otafl.plots.quantities import spelled_out
from otafl.plots.style import MANY, named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = 9
OWN = ("device", "cause", "level", "class")
"""Dims that variables bring along, beside trial and round."""


class Layout(NamedTuple):
    """Axes of a result: `hue` and `facet` of the part that is picked by position; `said` tells
    what was picked."""

    ds: xr.Dataset
    hue: str | None
    facet: str | None
    said: str


def main_variable(ds: xr.Dataset) -> str:
    """What to draw of a result if nothing is said: the global model's accuracy, where it has
    one."""
    for name in (
        "test_accuracy",
        "personal_own_test_accuracy",
        "personal_test_accuracy",
        "local_test_accuracy",
    ):
        if name in ds and bool(ds[name].notnull().any()):
            return name
    return str(next(iter(ds.data_vars)))


def unzipped(ds: xr.Dataset) -> xr.Dataset:
    """A joint axis as its first coordinate whose values all differ; else spelled out."""
    for name, along in ds.coords.items():
        if along.dims == ("zip",) and name != "zip" and len(np.unique(along)) == along.size:
            return ds.swap_dims(zip=str(name))
    return spelled_out(ds)


def axes(ds: xr.Dataset) -> list[str]:
    """The sweep's axes that have several values, choices first: they tell more as curves of one
    panel than numbers do."""
    free = [dim for dim in _points(ds) if ds.sizes[dim] > 1]
    return sorted(free, key=lambda dim: ds[dim].dtype.kind in "fiu")


def _points(ds: xr.Dataset) -> list[str]:
    """Dims of the sweep."""
    dims = ds[main_variable(ds)].dims
    return [str(dim) for dim in dims if dim not in ("trial", "round", *OWN)]


def arranged(ds: xr.Dataset, *taken: str, facets: bool = True) -> Layout:
    """Hue and facet for the axes that are not `taken` and not too long; of what is left, the first
    value. ds: after `unzipped`."""
    rest = [dim for dim in axes(ds) if dim not in taken]
    hue = next((dim for dim in rest if ds.sizes[dim] <= MANY), None)
    panels = (dim for dim in rest if ds.sizes[dim] <= PANELS and dim != hue)
    facet = next(panels, None) if facets else None
    left = [dim for dim in rest if dim not in (hue, facet)]
    said = ", ".join(named(ds, dim, ds[dim].values[0]) for dim in left)
    alone = [dim for dim in _points(ds) if ds.sizes[dim] == 1]
    return Layout(ds.isel(dict.fromkeys((*left, *alone), 0)), hue, facet, said)


def overview_data(ds: xr.Dataset) -> tuple[xr.Dataset, str]:
    """What `overview` draws, and its title."""
    from otafl.plots.curves import curve_data

    y = main_variable(ds)
    ds = unzipped(ds)
    own = [dim for dim in ds[y].dims if dim in OWN]
    free = axes(ds)
    numeric = [dim for dim in free if ds[dim].dtype.kind in "fiu" and ds.sizes[dim] > 2]
    x = "round"
    if numeric and (len(free) > 1 or ds.sizes[numeric[0]] > MANY):
        x = numeric[0]
    long = [dim for dim in free if dim not in numeric and ds.sizes[dim] > MANY]
    if x == "round" and long:
        x = long[0]
    layout = arranged(ds, x)
    first: dict[Any, int] = {dim: 0 for dim in own if dim in layout.ds.dims}
    data = curve_data(layout.ds.isel(first), y, x, layout.hue, layout.facet)
    return data, layout.said


def overview(ds: xr.Dataset, path: Path | str) -> Figure:
    """The picture written beside a result: accuracy against the first numeric axis of a sweep with
    at least three values, or over more choices than can be told apart as curves, else against
    the round; other axes as hue and panels. Axes that are
    left, or too long, stay at their first value, which the title says."""
    from otafl.plots.drawing import draw

    data, said = overview_data(ds)
    return draw(data, path, said)
