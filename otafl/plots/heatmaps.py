"""Heat maps: a variable over two axes, mean over trials, its value written in each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from otafl.analysis.figures import shown
from otafl.analysis.summary import number
from otafl.core.errors import UserError
from otafl.plots.layout import (
    LETTERS_PER_INCH,
    in_a_row,
    name_ticks,
    panel_data,
    panels,
    settle,
)
from otafl.plots.quantities import (
    Selection,
    along_coordinates,
    at_the_end,
    check_distinct,
    check_variable,
    labels,
    lost_note,
    only_drawn,
    picked,
    statistics,
)
from otafl.plots.style import spans_decades, wrapped
from otafl.results.dataset import final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

COLOURS = "cividis"
"""Nuñez, Anderton and Renslow (2018), PLOS ONE 13(7): even in lightness, the same to colour-blind
readers. High values are light."""
EMPTY = "0.85"
"""Grey of a cell without a value, which is also hatched."""
CELL = (0.62, 0.36)
"""Inches that a cell should have; figures grow to it up to `LARGEST`."""
LARGEST = (14.0, 7.0)
"""Inches of all panels beside each other, and of the height of one."""
SMALLEST = (2.4, 1.8)
LINE = 0.18
"""Inches of a line of a row's name."""
LETTERS = (9.0, 7.5, 6.0)
"""Font sizes that are tried for the values in the cells, largest first."""
NAMED = 30
"""More rows or columns than this do not all have their value under a tick."""


def axes_of(ds: xr.Dataset, z: str) -> list[str]:
    """Dims of a variable's final value that have several values, numbers first."""
    known = [str(dim) for dim in final(ds, z).dims if dim not in ("trial", "device", "cause")]
    known = [dim for dim in known if ds.sizes[dim] > 1]
    return sorted(known, key=lambda dim: dim == "zip" or ds[dim].dtype.kind not in "fiu")


def heatmap_data(
    ds: xr.Dataset,
    z: str,
    x: str | None = None,
    y: str | None = None,
    facet: str | None = None,
    sel: Selection | None = None,
) -> xr.Dataset:
    """What is drawn, with dims ([facet], y, x): mean, std and trials as in `curve_data`.

    x, y: dims or coordinates, also `round`; else the first axes that are free, numbers first.
    Without `round` it is the end of each trial. Raises UserError for unknown names, where there are
    no two axes, and for a dim that is neither drawn nor picked.
    """
    check_variable(ds, "--z", z)
    check_distinct(x=x, y=y, facet=facet)
    ds = picked(ds, sel)
    x, y = _two_axes(ds, z, x, y, facet)
    drawn = [name for name in (facet, y, x) if name]
    note = lost_note(ds)
    ds = along_coordinates(ds.assign({z: at_the_end(ds, z, drawn)}), drawn, z)
    values = only_drawn(ds[z], drawn, "--facet")
    table = statistics(values, drawn)
    table.attrs = {"kind": "heatmap", "z": z, "x": x, "y": y, "facet": facet or "", "note": note}
    table.attrs |= labels(x=ds[x], y=ds[y], z=values.rename(z))
    return table.assign_attrs(log_z=int(spans_decades(table["mean"].values)))


def draw_heatmap(data: xr.Dataset, title: str = "") -> Figure:
    """A figure of `heatmap_data`: one colour bar for all panels."""
    from matplotlib.colors import LogNorm, Normalize

    size = _size(data)
    figure, axes = panels(data, size=size)
    values = data["mean"].values
    finite = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    norm = (LogNorm if data.attrs["log_z"] else Normalize)(finite.min(), finite.max())
    meshes = [_panel(ax, panel_data(data, i), norm) for i, ax in enumerate(axes)]
    bar = figure.colorbar(meshes[0], ax=axes, pad=0.02, aspect=25)
    rows = -(-len(axes) // in_a_row(len(axes)))
    bar.set_label(wrapped(data.attrs["z_label"], int(LETTERS_PER_INCH * rows * size[1])))
    settle(figure, "\n".join((title, data.attrs["note"])), size, choices=True)
    _write_values(axes, meshes)
    return figure


def _two_axes(
    ds: xr.Dataset, z: str, x: str | None, y: str | None, facet: str | None
) -> tuple[str, str]:
    """The axes that were asked for, else those that are free."""
    taken = {str(ds[name].dims[0]) for name in (x, y, facet) if name in ds.coords and ds[name].ndim}
    free = [dim for dim in axes_of(ds, z) if dim not in taken]
    wanted = [name for name in (x, y) if name is None]
    if len(free) < len(wanted):
        have = ", ".join(axes_of(ds, z)) or "none"
        raise UserError(
            f"a heat map needs two axes; those of {z} with several values: {have}; --x round or "
            "--y round draws it over the rounds"
        )
    x = x or free.pop(0)
    return x, y or free.pop(0)


def _size(data: xr.Dataset) -> tuple[float, float]:
    """Inches of a panel: cells that hold their value and their name, as far as there is room."""
    y, x = (str(dim) for dim in data["mean"].dims[-2:])
    facet = data.attrs["facet"]
    columns = in_a_row(data.sizes[facet]) if facet else 1
    texts = [wrapped(shown(value)) for value in data[y].values[:NAMED]]
    lines = max(text.count("\n") + 1 for text in texts) if data.sizes[y] <= NAMED else 1
    width = max(SMALLEST[0], CELL[0] * data.sizes[x])
    height = max(SMALLEST[1], max(CELL[1], LINE * lines) * data.sizes[y])
    return min(LARGEST[0] / columns, width), min(LARGEST[1], height)


def _panel(ax: Axes, data: xr.Dataset, norm: Any) -> QuadMesh:
    """Cells of equal size; row 0 below, column 0 at the left."""
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
    for axis, name in ((ax.xaxis, x), (ax.yaxis, y)):
        _name(axis, [shown(value) for value in data[name].values])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return mesh


def _name(axis: Any, names: list[str]) -> None:
    """A name at each cell, or at every so many of a long axis."""
    step = -(-len(names) // NAMED)
    name_ticks(axis, names)
    if step > 1:
        axis.set_ticks(range(0, len(names), step), names[::step])


def _write_values(axes: list[Axes], meshes: list[QuadMesh]) -> None:
    """The value of each cell in it, black or white by its lightness, if all fit."""
    values: list[np.ndarray] = [
        np.ma.filled(np.ma.asarray(mesh.get_array()), np.nan) for mesh in meshes
    ]
    texts = [number(float(value), 3) for panel in values for value in panel[np.isfinite(panel)]]
    size = _letters(axes[0], max(texts, key=len, default=""))
    if size is None:
        return
    for ax, mesh, panel in zip(axes, meshes, values, strict=True):
        for (row, column), value in np.ndenumerate(panel):
            if np.isfinite(value):
                colour = _readable_on(np.asarray(mesh.to_rgba(value)))
                text = ax.text(column, row, number(float(value), 3), fontsize=size, color=colour)
                text.set(ha="center", va="center")


def _letters(ax: Axes, longest: str) -> float | None:
    """The largest font size at which a text fits into a cell; None where none does."""
    corners = ax.transData.transform([(0, 0), (1, 1)])
    width, height = np.abs(corners[1] - corners[0])
    trial = ax.text(0, 0, longest)
    try:
        for size in LETTERS:
            trial.set_fontsize(size)
            box = trial.get_window_extent()
            if box.width < 0.9 * width and box.height < 0.95 * height:
                return size
    finally:
        trial.remove()
    return None


def _readable_on(colour: np.ndarray) -> str:
    """Black or white, whichever contrasts more (relative luminance of WCAG 2)."""
    rgb = colour[:3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return "black" if np.dot(linear, (0.2126, 0.7152, 0.0722)) > 0.179 else "white"
