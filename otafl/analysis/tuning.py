"""Choose hyper-parameters after a sweep: equally for every method, on validation data."""

from __future__ import annotations

import xarray as xr

from otafl.core.errors import UserError
from otafl.results.end_values import count_diverged, select_at_end


def select_tuned(result: xr.Dataset, over: str, by: str = "validation_accuracy") -> xr.Dataset:
    """Select the best value of one sweep axis.

    The value is chosen at every point of the other axes, by the mean over trials of a variable at
    the end of each trial. A diverged trial counts as `results.ending.count_diverged` states, and a
    trial without a value as 0.

    Parameters
    ----------
    result : xarray.Dataset
        Result of `open_results`.
    over : str
        Name of the axis, for example `learning_rate`.
    by : str, default "validation_accuracy"
        Variable to maximise.

    Returns
    -------
    xarray.Dataset
        Result without the axis. The chosen value is a coordinate of the axis' name.

    Raises
    ------
    UserError
        If the result has no such axis or variable.
    """
    for name, there in ((over, result.dims), (by, result.data_vars)):
        if name not in there:
            have = ", ".join(sorted(map(str, there)))
            raise UserError(f"tuned: the result has no {name!r}; it has {have}")
    choice = select_at_end(count_diverged(result, [by]), by).fillna(0.0).mean("trial").argmax(over)
    return result.isel({over: choice})
