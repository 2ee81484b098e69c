"""Make the figure of what is drawn, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from otafl.plots.curves import curve_data
from otafl.plots.files import check_suffix, save
from otafl.plots.kinds import Kind
from otafl.plots.quantities import Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(data: xr.Dataset, path: Path | str | None = None, title: str = "") -> Figure:
    """Draw what `curve_data`, `heatmap_data`, `pareto_data` or `cdf_data` gives.

    The figure is written to `path` (PNG, PDF or SVG).

    Raises
    ------
    UserError : for another suffix, and where the file cannot be written.
    """
    check_suffix(path)
    figure = Kind(data.attrs["kind"]).recipe.draw(data, title)
    save(figure, path)
    return figure


def plot(
    ds: xr.Dataset,
    y: str,
    x: str,
    hue: str | None = None,
    facet: str | None = None,
    path: Path | str | None = None,
    sel: Selection | None = None,
) -> Figure:
    """Draw `curve_data` of the same arguments, as `draw` does."""
    check_suffix(path)
    return draw(curve_data(ds, y, x, hue, facet, sel), path)
