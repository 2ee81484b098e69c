"""Choose what is worth a first look: which variable, and which axes where."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from otafl.analysis.points import (
    find_main_variable,
    is_numeric,
    list_axes,
    list_coordinates,
)
from otafl.plots.curves import curve_data
from otafl.plots.drawing import draw
from otafl.plots.layout import MANY
from otafl.plots.quantities import label_joint_axis
from otafl.results.coordinates import format_coordinate

PANELS = 9
OWN = ("device", "cause", "level", "class")
"""Dims that variables bring along, beside trial and round."""


class OverviewLayout(NamedTuple):
    """Axes of a result: hue and facet of the part that is picked by position.

    `caption` tells what was picked.
    """

    ds: xr.Dataset
    hue: str | None
    facet: str | None
    caption: str


def unzip_axis(ds: xr.Dataset) -> xr.Dataset:
    """Turn a joint axis into its first coordinate whose values all differ; else spell it out."""
    for name in list_coordinates(ds, "zip") if "zip" in ds.dims else ():
        if name != "zip" and len(np.unique(ds[name])) == ds.sizes["zip"]:
            return ds.swap_dims(zip=name)
    return label_joint_axis(ds)


def list_free_axes(ds: xr.Dataset) -> list[str]:
    """Return the sweep's axes that have several values, choices first.

    Choices tell more as curves of one panel than numbers do.
    """
    return sorted(
        (dim for dim in list_axes(ds) if ds.sizes[dim] > 1), key=lambda d: is_numeric(ds[d])
    )


def choose_layout(ds: xr.Dataset, *taken: str) -> OverviewLayout:
    """Choose hue and facet of the axes that are not `taken` and not too long.

    Of those that are left it is the first value. ds: after `unzip_axis`.
    """
    rest = [dim for dim in list_free_axes(ds) if dim not in taken]
    hue = next((dim for dim in rest if ds.sizes[dim] <= MANY), None)
    facet = next((dim for dim in rest if ds.sizes[dim] <= PANELS and dim != hue), None)
    left = [dim for dim in rest if dim not in (hue, facet)]
    said = ", ".join(format_coordinate(ds, dim, ds[dim].values[0]) for dim in left)
    alone = [dim for dim in list_axes(ds) if ds.sizes[dim] == 1]
    return OverviewLayout(ds.isel(dict.fromkeys((*left, *alone), 0)), hue, facet, said)


def overview_data(ds: xr.Dataset) -> tuple[xr.Dataset, str]:
    """Compute what `draw_overview` draws, and its title."""
    y, ds = find_main_variable(ds), unzip_axis(ds)
    free = list_free_axes(ds)
    numbers = [dim for dim in free if is_numeric(ds[dim]) and ds.sizes[dim] > 2]
    long = [dim for dim in free if dim not in numbers and ds.sizes[dim] > MANY]
    x = "round"
    if numbers and (len(free) > 1 or ds.sizes[numbers[0]] > MANY):
        x = numbers[0]
    elif long:
        x = long[0]
    layout = choose_layout(ds, x)
    first = {dim: 0 for dim in ds[y].dims if dim in OWN}
    return curve_data(layout.ds.isel(first), y, x, layout.hue, layout.facet), layout.caption


def draw_overview(ds: xr.Dataset, path: Path | str) -> Figure:
    """Draw the picture that is written beside a result.

    That is accuracy against the first numeric axis of a sweep with at least three values, or over
    more choices than can be distinguished as curves, else against the round; other axes are hue and
    panels. Axes that are left, or too long, stay at their first value, which the title says.

    Parameters
    ----------
    ds : as `open_results` gives it.
    path : of a PNG, PDF or SVG file.

    Raises
    ------
    UserError : for another suffix, and where the file cannot be written.
    """
    data, said = overview_data(ds)
    return draw(data, path, said)
