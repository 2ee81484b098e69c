"""Choosing hyper-parameters after a sweep: equally for every method, on validation data."""

from __future__ import annotations

import xarray as xr

from otafl.core.errors import UserError
from otafl.results.dataset import final


def tuned(result: xr.Dataset, over: str, by: str = "validation_accuracy") -> xr.Dataset:
    """The result at the best value of one sweep axis, chosen at every point of the others by the
    mean over trials of a variable at the end of each trial.

    over: the axis, as `learning_rate`. by: the variable; the largest is best, and a trial that
    diverged counts as 0. Returns a dataset without the axis, with the chosen value as a coordinate
    of its name. Raises UserError where the result lacks either.
    """
    for name, there in ((over, result.dims), (by, result.data_vars)):
        if name not in there:
            have = ", ".join(sorted(map(str, there)))
            raise UserError(f"tuned: the result has no {name!r}; it has {have}")
    choice = final(result, by).fillna(0.0).mean("trial").argmax(over)
    return result.isel({over: choice})
