"""Short and own names of what is drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import xarray as xr

from otafl.analysis.points import is_numeric
from otafl.core.suggestions import make_unknown_name_error
from otafl.results.coordinates import format_value

AXES = ("x", "y", "z")
SPLITS = ("hue", "facet")


def shorten_labels(data: xr.Dataset) -> xr.Dataset:
    """Name variables along the axes by their short names, with their units.

    "test accuracy of the global model" becomes "test accuracy". Coordinates, whose names are short,
    and axes that were given a name keep theirs.
    """
    changed = {}
    for axis in AXES:
        name, label = str(data.attrs.get(axis, "")), str(data.attrs.get(f"{axis}_label", ""))
        if name not in ("", "share", *data.coords) and not data.attrs.get(f"{axis}_named"):
            units = re.search(r"\[(.*?)\]", label)
            bare = name.removesuffix(f"_{units[1].lower()}") if units else name
            ending = "".join(re.findall(r"\n\(.*\)$", label))
            words = bare.replace("_", " ") + (f" [{units[1]}]" if units else "")
            changed[f"{axis}_label"] = words + ending
    return data.assign_attrs(changed)


def rename_labels(
    data: xr.Dataset, labels: Mapping[str, str], others: Mapping[str, str] | None = None
) -> xr.Dataset:
    """Rename variables, axes and their values.

    Parameters
    ----------
    labels : name of a variable or an axis that is drawn, or a value of an axis of choices -> text.
    others : labels that are left out if their name is not drawn.

    Raises
    ------
    UserError : for a name of `labels` that is not drawn.
    """
    dims = list(dict.fromkeys(str(data.attrs.get(one, "")) for one in (*SPLITS, *AXES)))
    dims = [dim for dim in dims if dim in data.coords]
    known = [str(data.attrs[axis]) for axis in (*AXES, *SPLITS) if data.attrs.get(axis)]
    values = {
        format_value(value): dim
        for dim in dims
        if not is_numeric(data[dim])
        for value in data[dim].values
    }
    drawn = {*known, *values}
    more = {name: text for name, text in (others or {}).items() if name in drawn}
    for name, text in (more | dict(labels)).items():
        if name not in values and name not in known:
            found = dict.fromkeys((*known, *values))
            raise make_unknown_name_error(f"--label {name}", "drawn here", name, found)
        for axis in AXES:
            if data.attrs.get(axis) == name:
                data = data.assign_attrs({f"{axis}_label": text, f"{axis}_named": 1})
        if name in dims:
            about = data[name].attrs | {"long_name": text, "units": "1"}
            data = data.assign_coords({name: (data[name].dims, data[name].values, about)})
        if name in values:
            dim = values[name]
            texts = [text if format_value(v) == name else format_value(v) for v in data[dim].values]
            data = data.assign_coords({dim: (dim, np.array(texts), data[dim].attrs)})
    return data
