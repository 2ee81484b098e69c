"""Labels of a scenario, which figures, tables and reports show in place of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.points import is_numeric
from otafl.results.coordinates import format_value
from otafl.results.header import read_scenario


def read_labels(source: Any) -> dict[str, str]:
    """Return name -> text of `output.labels` of a result's scenario, or of a scenario itself."""
    if not isinstance(source, xr.Dataset):
        return dict(getattr(getattr(source, "output", None), "labels", {}))
    output = read_scenario(source.attrs).get("output") if "scenario" in source.attrs else None
    found = output.get("labels") if isinstance(output, dict) else None
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, dict) else {}


def label_result(ds: xr.Dataset, labels: Mapping[str, str]) -> xr.Dataset:
    """Write labels in place of the values of choices, and of long names.

    Parameters
    ----------
    ds : xarray.Dataset
        Result, from which values are no longer selected by their names.
    labels : mapping of str to str
        Name of a variable or an axis, or text of a value -> its label. Other names are ignored.

    Returns
    -------
    xarray.Dataset
        Result with labels.
    """
    changed = {}
    for name, coordinate in ds.coords.items():
        if coordinate.ndim != 1 or is_numeric(coordinate):
            continue
        texts = [format_value(value) for value in coordinate.values]
        if labels.keys() & set(texts):
            values = np.array([labels.get(text, text) for text in texts])
            changed[name] = (coordinate.dims, values, coordinate.attrs)
    ds = ds.assign_coords(changed).copy()  # whose attributes are its own
    for name in labels.keys() & {str(one) for one in ds.variables}:
        ds[name].attrs["long_name"] = labels[name]
    return ds
