"""From what is drawn to the figure and its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from otafl.analysis.figures import check_suffix, save
from otafl.plots.cdfs import draw_cdf
from otafl.plots.curves import curve_data, draw_curves
from otafl.plots.fronts import draw_pareto
from otafl.plots.heatmaps import draw_heatmap
from otafl.plots.quantities import Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: dict[str, Callable[[xr.Dataset, str], Figure]] = {
    "curves": draw_curves,
    "heatmap": draw_heatmap,
    "pareto": draw_pareto,
    "cdf": draw_cdf,
}


def draw(data: xr.Dataset, path: Path | str | None = None, title: str = "") -> Figure:
    """The figure of `curve_data`, `heatmap_data`, `pareto_data` or `cdf_data`, written to `path`
    (PNG, PDF or SVG)."""
    if path is not None:
        check_suffix(path)
    figure = KINDS[data.attrs["kind"]](data, title)
    if path is not None:
        save(figure, Path(path))
    return figure


def plot(
    ds: xr.Dataset,
    y: str,
    x: str,
    hue: str | None = None,
    facet: str | None = None,
    path: Path | str | None = None,
    sel: Selection | None = None,
    title: str | None = None,
) -> Figure:
    """Draw `curve_data` of the same arguments and save it to `path` (PNG, PDF or SVG)."""
    if path is not None:
        check_suffix(path)
    return draw(curve_data(ds, y, x, hue, facet, sel), path, title or "")
