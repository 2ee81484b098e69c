"""Choice of the variable that is shown of a result if none is named."""

from __future__ import annotations

from collections.abc import Collection

import xarray as xr

from otafl.losses.metrics import list_variables

MAIN_VARIABLES = list_variables("test", "personal_own_test", "personal_test", "local_test")


def find_main_variable(ds: xr.Dataset) -> str:
    """Return the variable that is shown if none is named.

    That is the global model's accuracy, mean squared error or perplexity, where there is one.
    """
    return find_first_known(ds, MAIN_VARIABLES) or str(next(iter(ds.data_vars)))


def find_first_known(ds: xr.Dataset, names: Collection[str]) -> str | None:
    """Return the first of these variables that the result has values of."""
    return next((one for one in names if one in ds and bool(ds[one].notnull().any())), None)
