"""Draw heat maps: a variable over two axes, mean over trials, its value written in each cell.

References
----------
Nuñez, Anderton, Renslow 2018, "Optimizing colormaps with consideration for color vision deficiency
    to enable accurate interpretation of scientific data", PLOS ONE 13(7).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from otafl.analysis.points import find_main_variable, is_numeric
from otafl.analysis.summary import format_number
from otafl.core.errors import UserError
from otafl.plots import quantities
from otafl.plots.kinds import FigureRecipe
from otafl.plots.layout import (
    count_columns,
    count_letters,
    finish,
    fit_names,
    get_width,
    make_panels,
    name_ticks,
    spans_decades,
    wrap_text,
)
from otafl.results.coordinates import format_value

COLOURS = "cividis"
"""Even in lightness, and the same to colour-blind readers (Nuñez et al. 2018). High values are
light."""
LIGHT = 0.468
"""Place in these colours above which black letters contrast more than white ones."""
EMPTY = "0.85"
"""Grey of a cell without a value, which is also hatched."""
CELL = (0.62, 0.36)
"""Inches that a cell should have; figures grow to it up to `MAX_INCHES`."""
MAX_INCHES = (14.0, 7.0)
"""Inches of all panels beside each other, and of the height of one."""
SMALLEST = (2.4, 1.8)
ROW = 0.15
"""Inches of a line of a row's name."""
LETTERS = (6.0, 9.0)
"""Smallest and largest font size of the values in the cells."""
LETTER = 0.65
"""Width of a digit, as a part of the font size."""
NAMED = 30
"""More rows or columns than this do not all have their value under a tick."""


def heatmap_data(
    ds: xr.Dataset,
    z: str | None = None,
    x: str | None = None,
    y: str | None = None,
    facet: str | None = None,
    sel: quantities.Selection | None = None,
) -> xr.Dataset:
    """Compute what is drawn as a heat map.

    Without `round` among the dims it is the end of each trial (`results.end_values`).

    Parameters
    ----------
    z : a variable; None: the main accuracy.
    x, y : dims or coordinates, also `round`; None: the first axes that are free, numbers first.
    facet : a dim whose values are panels.
    sel : dim -> the value of it that is drawn.

    Returns
    -------
    With dims ([facet], y, x): mean, std and trials as in `curve_data`.

    Raises
    ------
    UserError : for unknown names, where there are no two axes, and for a dim that is neither drawn
        nor picked.
    """
    z = z or find_main_variable(ds)
    quantities.check_variable(ds, "--z", z)
    ds = quantities.select_values(ds, sel, x=x, y=y, facet=facet)
    x, y = _choose_axes(ds, z, x, y, facet)
    drawn = [name for name in (facet, y, x) if name]
    ds, values = quantities.select_quantity(ds, z, drawn, "--facet")
    table = quantities.compute_statistics(values, drawn)
    axes = {"x": ds[x], "y": ds[y], "z": values.rename(z)}
    table.attrs = quantities.build_attributes("heatmap", ds, axes, z=z, x=x, y=y, facet=facet)
    return table.assign_attrs(log_z=int(spans_decades(table["mean"].values)))


def draw_heatmap(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `heatmap_data`: one colour bar for all panels."""
    # the inches of a panel whose cells hold their value, and rows their name, if they can
    y, x = (str(dim) for dim in data["mean"].dims[-2:])
    facet, total = data.attrs["facet"], get_width(data)
    columns = count_columns(data.sizes[facet] if facet else 1, total)
    width = min(MAX_INCHES[0] / columns, max(SMALLEST[0], CELL[0] * data.sizes[x]))
    height = min(MAX_INCHES[1], max(SMALLEST[1], CELL[1] * data.sizes[y]))
    if total:
        slim = 0.5 * total / columns
        height = max(height, width / slim * ROW * min(NAMED, data.sizes[y]))
    size = width, height
    figure, shows = make_panels(data, size)
    values = data["mean"].values
    finite = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    norm = (LogNorm if data.attrs["log_z"] else Normalize)(finite.min(), finite.max())
    axes = [ax for ax, _ in shows]
    meshes = [_draw_panel(ax, part, norm) for ax, part in shows]
    bar = figure.colorbar(meshes[0], ax=axes, pad=0.02, aspect=25)
    rows = -(-len(axes) // count_columns(len(axes)))
    bar.set_label(wrap_text(data.attrs["z_label"], count_letters(rows * size[1])))
    finish(figure, data, title, size)
    # write the value of each cell in it, black or white by its lightness, if all fit
    cells = [
        (ax, place, float(value))
        for ax, mesh in zip(axes, meshes, strict=True)
        for place, value in np.ma.ndenumerate(np.ma.asarray(mesh.get_array()))
    ]
    longest = max((len(format_number(value, 3)) for *_, value in cells), default=1)
    corners = axes[0].transData.transform([(0, 0), (1, 1)])
    width, height = 72 / axes[0].figure.dpi * np.abs(corners[1] - corners[0])
    size = min(LETTERS[1], 0.9 * width / (LETTER * longest), 0.8 * height)
    for ax, (row, column), value in cells if size >= LETTERS[0] else ():
        colour = "black" if norm(value) > LIGHT else "white"
        style: dict[str, Any] = {"fontsize": size, "color": colour, "ha": "center", "va": "center"}
        ax.text(column, row, format_number(value, 3), **style)
    return figure


def list_free_axes(ds: xr.Dataset, z: str) -> list[str]:
    """Return dims of a variable at the trials' end that have several values, numbers first."""
    own = ("trial", "round", "device", "cause")
    known = [str(dim) for dim in ds[z].dims if dim not in own and ds.sizes[dim] > 1]
    return sorted(known, key=lambda dim: dim == "zip" or not is_numeric(ds[dim]))


def _choose_axes(
    ds: xr.Dataset, z: str, x: str | None, y: str | None, facet: str | None
) -> tuple[str, str]:
    """Return the axes that were asked for, else those that are free."""
    taken = {str(ds[name].dims[0]) for name in (x, y, facet) if name in ds.coords and ds[name].ndim}
    free = [dim for dim in list_free_axes(ds, z) if dim not in taken]
    if len(free) < (x, y).count(None):
        have = ", ".join(list_free_axes(ds, z)) or "none"
        raise UserError(
            f"a heat map needs two axes; those of {z} with several values: {have}; --x round or "
            "--y round draws it over the rounds"
        )
    x = x or free.pop(0)
    return x, y or free.pop(0)


def _draw_panel(ax: Axes, data: xr.Dataset, norm: Any) -> QuadMesh:
    """Draw cells of equal size; row 0 is below, column 0 at the left."""
    y, x = (str(dim) for dim in data["mean"].dims)
    values = np.ma.masked_invalid(data["mean"].values)
    if data.attrs["log_z"]:
        values = np.ma.masked_less_equal(values, 0)
    ax.set_facecolor(EMPTY)
    rows, columns = values.shape
    if np.ma.is_masked(values):
        ax.patch.set(hatch="///", edgecolor="0.7", linewidth=0)
    edges = [np.arange(n + 1) - 0.5 for n in (columns, rows)]
    mesh = ax.pcolormesh(*edges, values, cmap=COLOURS, norm=norm, edgecolors="white", linewidth=0.4)
    across, up = ([format_value(value) for value in data[name].values] for name in (x, y))
    _, angle = fit_names(across, data.attrs["panel_width"] * max(1.0, len(across) / NAMED))
    name_ticks(ax.xaxis, across, angle, most=NAMED)
    name_ticks(ax.yaxis, up, most=NAMED)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return mesh


RECIPE = FigureRecipe(
    heatmap_data,
    draw_heatmap,
    {"mean": "{z}", "std": "{z}_std"},
    "{z}_heatmap",
    ("z", "x", "y", "facet"),
)
