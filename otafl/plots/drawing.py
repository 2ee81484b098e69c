"""Make the figure of what is drawn, and its file."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import xarray as xr
from matplotlib.figure import Figure

from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.plots.kinds import Kind
from otafl.plots.layout import JOURNAL_FONT
from otafl.plots.relabel import shorten_labels

SUFFIXES = (".png", ".pdf", ".svg")
MIN_WIDTH, MAX_WIDTH = 2.0, 20.0
"""Inches that may be asked for."""


def draw(
    data: xr.Dataset,
    path: Path | str | None = None,
    title: str = "",
    width: float | None = None,
) -> Figure:
    """Draw the data of a figure.

    They come from `curve_data`, `heatmap_data`, `pareto_data`, `cdf_data`, `partition_data` or
    `map_data`.

    Parameters
    ----------
    path : where the figure is written to, as `save` does; None: nowhere.
    title : a line above the panels; "" for none.
    width : inches of the whole figure, with letters of 8 points and short labels, as 3.5 for a
        column of a journal; None: what the panels need.

    Raises
    ------
    UserError : as `save`, and for a width without room for the panels.
    """
    recipe = Kind(data.attrs["kind"]).recipe
    if width is None:
        figure = recipe.draw_fn(data, title)
    else:
        if not MIN_WIDTH <= width <= MAX_WIDTH:
            raise UserError(
                f"width {width:g}: expected {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, like 3.5 for a "
                "column of a journal"
            )
        with matplotlib.rc_context({"font.size": JOURNAL_FONT}):
            figure = recipe.draw_fn(shorten_labels(data).assign_attrs(width=width), title)
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
    # journals refuse the fonts of type 3 that matplotlib writes into PDF
    with write_atomically(path) as temporary, matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(temporary, dpi=160, format=suffix[1:])
