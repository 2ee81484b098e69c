"""Power budgets of different kinds among the points of a result."""

from __future__ import annotations

import numpy as np
import xarray as xr

from otafl.analysis.points import list_axes, list_coordinates
from otafl.scenario.power_budgets import KINDS, describe_power_budgets


def describe_mixed_budgets(ds: xr.Dataset) -> str:
    """Describe which points hold which kind of power budget.

    Parameters
    ----------
    ds : xr.Dataset
        A combined dataset, or points of one.

    Returns
    -------
    str
        A sentence without its full stop; empty if all points that are there hold the same kind, or
        if the result does not record the kinds.
    """
    axes = list_axes(ds)
    if "power_constraint" not in ds or not axes:
        return ""
    kinds = ds["power_constraint"].max("trial").transpose(*axes)
    names = [(i, name) for i, dim in enumerate(axes) for name in list_coordinates(ds, dim)]
    values = {name: ds[name].values.tolist() for _, name in names}
    points = []
    for place, number in np.ndenumerate(kinds.values):
        if number in range(len(KINDS)):  # not NaN, and nothing that only another program writes
            labels = {name: values[name][place[i]] for i, name in names}
            points.append((labels, KINDS[int(number)]))
    return describe_power_budgets(points)
