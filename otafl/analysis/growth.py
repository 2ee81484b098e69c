"""Exponent with which a variable grows along an axis of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from otafl.analysis.points import format_label, is_numeric, swap_to_coordinate
from otafl.core.errors import UserError
from otafl.results.coordinates import format_values
from otafl.results.end_values import select_end_total


def fit_exponents(result: xr.Dataset, variables: Sequence[str], axis: str) -> xr.Dataset:
    """Fit the exponent a of y ~ x^a to each trial, by least squares over logarithms.

    Parameters
    ----------
    variables : y, at the end of each trial; values that are not positive do not count.
    axis : x, an axis of at least two positive numbers.

    Returns
    -------
    The exponents with dims (other axes, trial), NaN where fewer than two values are known.

    Raises
    ------
    UserError : for a name that is not there, and for an axis of other values.
    """
    ds = swap_to_coordinate(result, axis)
    x = ds[axis]
    if not is_numeric(x) or x.size < 2 or float(x.min()) <= 0:
        raise UserError(
            f"growth: expected an axis of two or more positive numbers, got {axis} with "
            f"{format_values(x)}"
        )
    at, found = x.copy(data=np.log(x.values.astype(float))), {}
    for name in variables:
        values = select_end_total(ds, name)
        y: xr.DataArray = xr.ufuncs.log(values.where(values > 0))
        apart = at.where(y.notnull())
        apart = apart - apart.mean(axis)
        slope = (apart * (y - y.mean(axis))).sum(axis) / (apart**2).sum(axis)
        slope = slope.where(y.notnull().sum(axis) >= 2)
        said = f"exponent a in {format_label(ds[name], name)} ~ {axis}^a"
        slope.attrs = {"units": "1", "long_name": said}
        found[name] = slope.drop_vars("final_round", errors="ignore")
    ends = ds["final_round"].isel({axis: 0}, drop=True)
    return xr.Dataset(found, attrs=ds.attrs).assign_coords(final_round=ends)
