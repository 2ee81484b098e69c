"""What the figures and tables of the FedRLR paper share."""

from __future__ import annotations

from pathlib import Path

import xarray as xr
from matplotlib.axes import Axes

from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import count_diverged
from studies.common import tables


def open_result(results: Path, name: str) -> xr.Dataset:
    """Open the result of a scenario; a trial that diverged counts as a guess to the last round."""
    return count_diverged(tables.open_result(results, name), to_last_round=True)


def list_models(ds: xr.Dataset) -> list[tuple[str, str]]:
    """(what it is called, variable) of the models that a point evaluates."""
    both = [("global", "test_accuracy"), ("local", "local_test_accuracy")]
    return [(name, variable) for name, variable in both if ds[variable].notnull().any()]


def format_at_round(values: xr.DataArray, round: int) -> str:
    return format_mean_std(values.sel(round=round).values)


def tidy(axis: Axes, title: str, xlabel: str = "round", ncols: int = 2) -> None:
    axis.set(title=title, xlabel=xlabel, ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=ncols)
