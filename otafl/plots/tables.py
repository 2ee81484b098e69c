"""Write what a figure shows as a tidy table: one row a point that is drawn."""

from __future__ import annotations

from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from otafl.core.files import write_text
from otafl.plots.kinds import Kind

COUNTS = ("devices", "trials", "front")
"""Columns that say of how many the others are, and which points form a front."""


def build_table(data: xr.Dataset) -> pd.DataFrame:
    """Return a row for each mark of a figure, from what `kinds.Recipe.data` gives.

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
