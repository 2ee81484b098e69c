"""Choose hyper-parameters after a sweep: equally for every method, on validation data."""

from __future__ import annotations

import numpy as np
import xarray as xr

from otafl.core.errors import UserError
from otafl.losses.metrics import list_variables
from otafl.results.end_values import count_diverged, select_at_end
from otafl.results.variables import get_better_direction


def find_validation_variable(result: xr.Dataset) -> str:
    """Return the validation metric that a result has, the accuracy where it has none."""
    names = list_variables("validation")
    return next((name for name in names if name in result.data_vars), names[0])


def select_tuned(result: xr.Dataset, over: str, by: str | None = None) -> xr.Dataset:
    """Select the best value of one sweep axis.

    The value is chosen at every point of the other axes, by the mean over trials of a variable at
    the end of each trial. A diverged trial counts as `results.end_values.count_diverged` states,
    and a trial without a value as 0, or as infinity where less is better.

    Parameters
    ----------
    result : xarray.Dataset
        Result of `open_results`.
    over : str
        Name of the axis, for example `learning_rate`.
    by : str, optional
        Variable whose best value is chosen, the largest or, of an error, the smallest. By default
        the validation metric of the result: `validation_accuracy`, `validation_mse` or
        `validation_perplexity`.

    Returns
    -------
    xarray.Dataset
        Result without the axis. The chosen value is a coordinate of the axis' name.

    Raises
    ------
    UserError
        If the result has no such axis or variable.
    """
    by = by or find_validation_variable(result)
    for name, there in ((over, result.dims), (by, result.data_vars)):
        if name not in there:
            have = ", ".join(sorted(map(str, there)))
            raise UserError(f"tuned: the result has no {name!r}; it has {have}")
    ends = select_at_end(count_diverged(result, [by]), by)
    if get_better_direction(by) == "lower":
        return result.isel({over: ends.fillna(np.inf).mean("trial").argmin(over)})
    return result.isel({over: ends.fillna(0.0).mean("trial").argmax(over)})
