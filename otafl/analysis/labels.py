"""Labels, which figures, tables and reports show in place of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.points import is_numeric
from otafl.core.suggestions import make_unknown_name_error
from otafl.results.coordinates import format_value
from otafl.results.header import read_scenario

AXES = ("x", "y", "z")
"""Attributes of a figure's data that name a variable or a dim."""


def read_labels(source: Any) -> dict[str, str]:
    """Return name -> text of `output.labels` of a result's scenario, or of a scenario itself."""
    if not isinstance(source, xr.Dataset):
        return dict(getattr(getattr(source, "output", None), "labels", {}))
    output = read_scenario(source.attrs).get("output") if "scenario" in source.attrs else None
    found = output.get("labels") if isinstance(output, dict) else None
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, dict) else {}


def write_labels(
    ds: xr.Dataset,
    labels: Mapping[str, str],
    others: Mapping[str, str] | None = None,
    known: tuple[str, ...] = (),
) -> xr.Dataset:
    """Write labels in place of the values of choices, and beside the names of all else.

    Parameters
    ----------
    ds : a result, or what is made of one. Nothing is selected by the replaced values afterwards.
    labels : name of a variable or an axis, or text of a choice -> what is shown.
    others : labels that come after these, and whose name may be absent.
    known : names that may have a label and are not in `ds`.

    Returns
    -------
    The same data. Choices are replaced; variables and coordinates have the attribute `label`.

    Raises
    ------
    UserError : for a name of `labels` that is not there.
    """
    wanted = {**(others or {}), **labels}
    texts = {
        name: [format_value(value) for value in one.values]
        for name, one in ds.coords.items()
        if one.ndim == 1 and not is_numeric(one)
    }
    choices = dict.fromkeys(text for own in texts.values() for text in own)
    shown = [str(ds.attrs[axis]) for axis in AXES if axis in ds.attrs]
    there = dict.fromkeys((*choices, *map(str, ds.coords), *shown, *known, *map(str, ds.data_vars)))
    for name in labels:
        if name not in there:
            raise make_unknown_name_error(f"--label {name}", "in this result", name, there)
    changed = {
        name: (ds[name].dims, np.array([wanted.get(one, one) for one in own]), ds[name].attrs)
        for name, own in texts.items()
        if wanted.keys() & set(own)
    }
    ds = ds.assign_coords(changed).copy()  # whose attributes are its own
    for name in wanted.keys() & {str(one) for one in ds.variables}:
        ds[name].attrs["label"] = wanted[name]
    for axis in AXES:
        if label := wanted.get(ds.attrs.get(axis, "")):
            ds.attrs |= {f"{axis}_label": label, f"{axis}_short": label}
    return ds


def get_label(ds: xr.Dataset | xr.DataArray, name: str) -> str:
    """Return the label of a variable or coordinate, else its name in words."""
    return str(ds[name].attrs.get("label") or name.replace("_", " "))
