"""Read the coordinates of a result, and pick one of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from otafl.core.errors import UserError
from otafl.core.suggestions import make_unknown_name_error


def find_places(ds: xr.Dataset, name: str, value: Any) -> np.ndarray:
    """Return where along its dim a coordinate has a value, or its text, [n].

    Raises UserError for a coordinate or a value that is not there.
    """
    if name not in ds.coords or ds[name].ndim != 1:
        known = [one for one in ds.coords if ds[one].ndim == 1 and one != "final_round"]
        raise make_unknown_name_error(f"--sel {name}", "a dim of this result", name, known)
    values = ds[name].values
    if values.dtype.kind in "fiu":
        try:
            places = np.flatnonzero(np.isclose(values, float(value), rtol=1e-9, atol=0))
        except ValueError:
            places = np.empty(0, dtype=int)
    else:
        places = np.flatnonzero(values.astype(str) == str(value))
    if not len(places):
        raise UserError(
            f"--sel {name}={value}: no such value; {name} has {format_values(ds[name])}"
        )
    return places


def pick(ds: xr.Dataset, name: str, *values: Any) -> xr.Dataset:
    """Pick values of a dim or of a coordinate along it; of a single place the dim goes.

    Raises what `find_places` does.
    """
    places = np.unique(np.concatenate([find_places(ds, name, value) for value in values]))
    return ds.isel({ds[name].dims[0]: int(places[0]) if len(places) == 1 else places})


def format_value(value: Any) -> str:
    """Return a coordinate's value as it is read: 10 and not 10.0."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.item()
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_coordinate(ds: xr.Dataset, name: str, value: Any) -> str:
    """Name a coordinate and one value of it, as in "power: gbma".

    Of a joint axis whose values say what they are, it is the value.
    """
    if name == "zip" and isinstance(value, str):
        return value
    units = ds[name].attrs.get("units", "1")
    return f"{get_long_name(ds, name)}: {format_value(value)}{'' if units == '1' else ' ' + units}"


def get_long_name(ds: xr.Dataset, name: str) -> str:
    """Return what a coordinate or variable is called: its label, else its name in words."""
    about = ds[name].attrs
    return str(about.get("label") or about.get("long_name") or name.replace("_", " "))


def format_values(coordinate: xr.DataArray) -> str:
    """Write the values of a coordinate, those in the middle left out if there are many."""
    texts = [format_value(value) for value in coordinate.values]
    if len(texts) > 8:
        texts = [*texts[:4], "...", texts[-1]]
    return ", ".join(texts)
