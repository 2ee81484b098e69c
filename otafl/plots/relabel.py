"""Short and own names of what is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
        Of a joint axis (`zip`) a value is "gbma, 10 dB" or a part of it, "gbma".
    others : labels that are left out if their name is not drawn.

    Raises
    ------
    UserError : for a name of `labels` that is not drawn.
    """
    dims = _list_dims(data)
    known = [str(data.attrs[axis]) for axis in (*AXES, *SPLITS) if data.attrs.get(axis)]
    known += [dim for dim in data.attrs.get("points", ()) if is_numeric(data[dim])]
    texts = {dim: [format_value(one) for one in data[dim].values] for dim in dims}
    texts = {dim: values for dim, values in texts.items() if not is_numeric(data[dim])}
    drawn = dict.fromkeys((*known, *(one for values in texts.values() for one in values)))
    parts = "\n".join(texts.get("zip", ()))
    wanted = {**(others or {}), **labels}
    for name in [one for one in wanted if one not in drawn and not _match([one]).search(parts)]:
        if name in labels:
            raise make_unknown_name_error(f"--label {name}", "drawn here", name, drawn)
        del wanted[name]
    for name in (one for one in known if one in wanted):
        data = _rename_axis(data, name, wanted[name])
    for dim, values in texts.items():
        if wanted:
            new = [_rename_value(one, wanted, is_joint=dim == "zip") for one in values]
            data = data.assign_coords({dim: (dim, np.array(new), data[dim].attrs)})
    return data


def _list_dims(data: xr.Dataset) -> list[str]:
    """Return the dims whose values are drawn."""
    names = [data.attrs.get(one, "") for one in (*SPLITS, *AXES)]
    names = [str(name) for name in (*names, *data.attrs.get("points", ()))]
    return [name for name in dict.fromkeys(names) if name in data.coords]


def _rename_axis(data: xr.Dataset, name: str, text: str) -> xr.Dataset:
    """Name a variable or an axis, in the values of points with their units."""
    for axis in AXES:
        if data.attrs.get(axis) == name:
            data = data.assign_attrs({f"{axis}_label": text, f"{axis}_named": 1})
    if name not in data.coords:
        return data
    is_point = name in data.attrs.get("points", ())
    about = data[name].attrs | {"long_name": text} | ({"named": 1} if is_point else {"units": "1"})
    return data.assign_coords({name: (data[name].dims, data[name].values, about)})


def _rename_value(value: str, labels: Mapping[str, str], is_joint: bool) -> str:
    """Name a value, or the parts of a joint axis' value that have a label."""
    if value in labels or not is_joint:
        return labels.get(value, value)
    return _match(labels).sub(lambda found: labels[found[0]], value)


def _match(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of whole parts of a joint axis' values, of which the longest counts."""
    longest_first = sorted(names, key=len, reverse=True)
    either = "|".join(re.escape(name) for name in longest_first)
    return re.compile(rf"(?:^|(?<=, ))(?:{either})(?=, |$)", re.MULTILINE)
