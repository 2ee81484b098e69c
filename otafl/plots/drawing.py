"""Make the figure of what is drawn, and its file."""

from __future__ import annotations

from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.plots.kinds import Kind

SUFFIXES = (".png", ".pdf", ".svg")


def draw(data: xr.Dataset, path: Path | str | None = None, title: str = "") -> Figure:
    """Draw the data of a figure.

    They come from `curve_data`, `heatmap_data`, `pareto_data`, `cdf_data`, `partition_data` or
    `map_data`.

    Parameters
    ----------
    path : where the figure is written to, as `save` does; None: nowhere.
    title : a line above the panels; "" for none.

    Raises
    ------
    UserError : as `save`.
    """
    figure = Kind(data.attrs["kind"]).recipe.draw_fn(data, title)
    if path is not None:
        save(figure, path)
    return figure


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure as PNG, PDF or SVG, whole or not at all.

    Raises
    ------
    UserError : for another suffix.
    WriteError : where the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: a figure's file must end in .png, .pdf or .svg")
    with write_atomically(path) as temporary:
        figure.savefig(temporary, dpi=160, format=suffix[1:])
