"""Choose hyper-parameters after a sweep: equally for every method, on validation data."""

from __future__ import annotations

import xarray as xr

from otafl.core.errors import UserError
from otafl.results.ending import at_end, count_diverged


def tuned(result: xr.Dataset, over: str, by: str = "validation_accuracy") -> xr.Dataset:
    """Return the result at the best value of one sweep axis.

    The value is chosen at every point of the other axes, by the mean over trials of a variable at
    the end of each trial; one that diverged counts as `results.ending.count_diverged` says, and one
    without a value as 0.

    Parameters
    ----------
    result : as `open_results` gives it.
    over : the axis, as `learning_rate`.
    by : the variable, of which the largest is best.

    Returns
    -------
    Without the axis; the chosen value is a coordinate of its name.

    Raises
    ------
    UserError : where the result lacks either.
    """
    for name, there in ((over, result.dims), (by, result.data_vars)):
        if name not in there:
            have = ", ".join(sorted(map(str, there)))
            raise UserError(f"tuned: the result has no {name!r}; it has {have}")
    choice = at_end(count_diverged(result, [by]), by).fillna(0.0).mean("trial").argmax(over)
    return result.isel({over: choice})
