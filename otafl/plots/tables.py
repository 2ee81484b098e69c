"""What a figure shows as a tidy table: one row a point that is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from otafl.core.files import write_text
from otafl.plots import curves

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


def table(data: xr.Dataset) -> pd.DataFrame:
    """A row for each mark of the figure of `curve_data`, `heatmap_data`, `pareto_data` or
    `cdf_data`: the axes' coordinates, then values under their variables' names.

    curves: the abscissa, y, y_std, trials. heatmap: z, z_std, trials. pareto: x, x_std, y, y_std,
    trials, front. cdf: x, share, share_std, devices, trials; the foot of each first step, at which
    the share is still 0, has no row.
    """
    attrs, kind = data.attrs, data.attrs["kind"]
    if kind == "curves":
        data = data.where(xr.DataArray(curves.drawn(data), dims=data["mean"].dims))
        names = {"at": attrs["x"], "mean": attrs["y"], "std": f"{attrs['y']}_std"}
    elif kind == "heatmap":
        names = {"mean": attrs["z"], "std": f"{attrs['z']}_std"}
    elif kind == "pareto":
        names = {f"{axis}{end}": f"{attrs[axis]}{end}" for axis in "xy" for end in ("", "_std")}
    else:
        names = {"value": attrs["x"], "share": "share", "std": "share_std"}
    wanted = [name for name in (*names, "devices", "trials", "front") if name in data]
    axes = [name for name in data.coords if name not in ("step", *names)]
    rows = data[wanted].to_dataframe().reset_index()
    rows = rows.dropna(subset=[name for name in names if name in rows and "std" not in name])
    columns = [*(str(name) for name in axes if name in rows), *wanted]
    rows = rows[columns].rename(columns=names).reset_index(drop=True)
    return rows.astype({name: int for name in ("devices", "trials") if name in rows})


def write_csv(data: xr.Dataset, path: Path | str) -> None:
    """`table` as CSV. Raises WriteError where the file cannot be written."""
    write_text(Path(path), table(data).to_csv(index=False))
