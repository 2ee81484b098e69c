"""Make the figure of what is drawn, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
from matplotlib.figure import Figure

from otafl.analysis.paired import compute_quantile
from otafl.analysis.points import AXES
from otafl.core.errors import UserError
from otafl.core.files import write_atomically, write_text
from otafl.plots.kinds import Kind, Spread

SUFFIXES = (".png", ".pdf", ".svg")
MIN_WIDTH, MAX_WIDTH = 2.0, 20.0
"""Inches that may be asked for."""
JOURNAL_FONT = 8.0
"""Points of all letters of a figure whose width is given."""
NUMBERS = {"axes.formatter.useoffset": False, "axes.formatter.use_mathtext": True}
"""Settings of matplotlib: numbers of an axis have a power of ten in common, but no summand."""
PHRASES = {
    Spread.deviation: "mean ± one standard deviation",
    Spread.error: "mean ± one standard error",
    Spread.interval: "95 % confidence interval of the mean (Student's t)",
}


def draw(
    data: xr.Dataset,
    path: Path | str | None = None,
    title: str = "",
    width: float | None = None,
    spread: Spread | str = Spread.deviation,
) -> Figure:
    """Draw the data of a figure.

    They come from `curve_data`, `heatmap_data`, `pareto_data`, `cdf_data`, `partition_data` or
    `map_data`.

    Parameters
    ----------
    path : where the figure is written to, as `save` does; None: nowhere.
    title : a line above the panels; "" for none.
    width : inches of the whole figure, with letters of 8 points, short labels and nothing above the
        panels, as 3.5 for a column of a journal; None: what the panels need.
    spread : what bands and bars show: "deviation", "error" or "interval".

    Raises
    ------
    UserError : as `save`, and for a width without room for the panels.
    """
    kind, spread = Kind(data.attrs["kind"]), Spread(spread)
    data = compute_spread(data, spread).assign_attrs(band=describe_spread(data, spread))
    settings: Any = dict(NUMBERS)
    if width is not None:
        if not MIN_WIDTH <= width <= MAX_WIDTH:
            raise UserError(
                f"width {width:g}: expected {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, like 3.5 for a "
                "column of a journal"
            )
        data = shorten_labels(data).assign_attrs(width=width)
        settings["font.size"] = JOURNAL_FONT
    with matplotlib.rc_context(settings):
        figure = kind.recipe.draw_fn(data, title)
    if path is not None:
        save(figure, path)
    return figure


def shorten_labels(data: xr.Dataset) -> xr.Dataset:
    """Name variables along the axes by their short names, with their units."""
    short = {axis: data.attrs.get(f"{axis}_short") for axis in AXES}
    return data.assign_attrs({f"{axis}_label": text for axis, text in short.items() if text})


def compute_spread(data: xr.Dataset, spread: Spread) -> xr.Dataset:
    """Put what bands and bars show in place of the standard deviations.

    The standard error is s / sqrt(n). Half of the interval is t s / sqrt(n), with the quantile t of
    Student's distribution with n - 1 degrees of freedom.
    """
    if spread is Spread.deviation:
        return data
    changed = {}
    for name in ("std", "x_std", "y_std"):
        if name in data:
            count = data["x_trials" if name == "x_std" else "trials"]
            factor = compute_quantile(count) if spread is Spread.interval else 1.0
            changed[name] = data[name] * factor / np.sqrt(count)
    return data.assign(changed)


def describe_spread(data: xr.Dataset, spread: Spread = Spread.deviation) -> str:
    """Describe what shading and bars show, and of how many trials; empty for nothing."""
    if data.attrs.get("mark"):
        known = data["trials"].values[data["trials"].values > 0]
        least, most = known.min(initial=2**31), known.max(initial=0)
        if most > 1:
            count = f"{most}" if least == most else f"{least} to {most}"
            return f"{data.attrs['mark']}: {PHRASES[spread]}, n = {count} trials"
    return ""


def describe_figure(data: xr.Dataset, spread: Spread = Spread.deviation) -> str:
    """Write what the caption of a figure must say: its notes, and what bands and bars show."""
    return "; ".join(filter(None, (data.attrs["note"], describe_spread(data, spread))))


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


COUNTS = ("devices", "trials", "front")
"""Columns that say of how many the others are, and which points form a front."""


def build_table(data: xr.Dataset) -> pd.DataFrame:
    """Return a row for each mark of a figure, from what `kinds.FigureRecipe.data_fn` gives.

    The axes' coordinates come first, then values under their variables' names: curves have the
    abscissa, y, y_std, trials; heatmap z, z_std, trials; pareto x, x_std, y, y_std, trials, front;
    cdf x, share, devices, trials. The foot of each first step of a cdf, at which the
    share is still 0, has no row.
    """
    if "drawn" in data:
        data = data.where(data["drawn"])
    columns = Kind(data.attrs["kind"]).recipe.columns
    names = {name: column.format(**data.attrs) for name, column in columns.items()}
    wanted = [name for name in (*names, *COUNTS) if name in data]
    axes = [str(name) for name in data.coords if name not in ("step", *names)]
    rows = data[wanted].to_dataframe().reset_index()
    rows = rows.dropna(subset=[name for name in wanted if name in names and "std" not in name])
    rows = rows[[*(name for name in axes if name in rows), *wanted]]
    rows = rows.rename(columns=names).reset_index(drop=True)
    return rows.astype({name: int for name in COUNTS[:2] if name in rows})


def write_csv(data: xr.Dataset, path: Path | str) -> None:
    """Write `build_table` as CSV.

    Raises
    ------
    WriteError : where the file cannot be written.
    """
    write_text(Path(path), build_table(data).to_csv(index=False))
