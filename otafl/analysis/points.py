"""Points of a sweep: their axes, coordinates and values in words, and the points to show."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from otafl.core.errors import UserError
from otafl.core.suggestions import make_unknown_name_error
from otafl.losses.metrics import list_variables
from otafl.results.coordinates import format_coordinate, format_value, format_values, pick

MAIN_VARIABLES = list_variables("test", "personal_own_test", "personal_test", "local_test")


def find_main_variable(ds: xr.Dataset) -> str:
    """Return the variable that is shown if none is named.

    That is the global model's accuracy, mean squared error or perplexity, where there is one.
    """
    return find_first_known(ds, MAIN_VARIABLES) or str(next(iter(ds.data_vars)))


def find_first_known(ds: xr.Dataset, names: Collection[str]) -> str | None:
    """Return the first of these variables that the result has values of."""
    return next((one for one in names if one in ds and bool(ds[one].notnull().any())), None)


def list_axes(ds: xr.Dataset) -> list[str]:
    """Return the dims of the sweep, in the scenario's order; none of a point that was picked."""
    return [str(dim) for dim in ds["final_round"].dims] if "final_round" in ds else []


def is_numeric(values: xr.DataArray) -> bool:
    """Return whether a coordinate has numbers, not choices."""
    return values.dtype.kind in "fiu"


def get_unit(values: xr.DataArray) -> str:
    """Return the unit of a variable or coordinate, "" where it has none."""
    said = str(values.attrs.get("units", "1"))
    return "" if said == "1" else said


def format_label(values: xr.DataArray, name: str) -> str:
    """Write a variable or coordinate with its units, as in "normalised SNR [dB]"; or its label."""
    said = values.attrs.get("label") or values.attrs.get("long_name") or name.replace("_", " ")
    has_unit = "label" not in values.attrs and get_unit(values) not in ("", "round")
    return f"{said} [{get_unit(values)}]" if has_unit else str(said)


def format_short_label(values: xr.DataArray, name: str) -> str:
    """Write a variable by its short name with its units, as in "energy [J]"; or by its label."""
    if "label" in values.attrs:
        return str(values.attrs["label"])
    units = get_unit(values)
    bare = name.removesuffix(f"_{units.lower()}") if units else name
    return bare.replace("_", " ") + (f" [{units}]" if units not in ("", "round") else "")


def list_coordinates(ds: xr.Dataset | xr.DataArray, dim: str) -> list[str]:
    """Return the names of the coordinates that tell the places along an axis apart.

    A joint axis (`zip`) has those of its keys, and its own only where there are no others.
    """
    names = [str(name) for name, one in ds.coords.items() if one.dims == (dim,)]
    labels = [name for name in names if name not in ("zip", "final_round")]
    return labels or [dim]


def build_labels(
    ds: xr.Dataset | xr.DataArray, dims: Sequence[str], units: bool = True
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the coordinates along some axes, and their texts at every combination of places.

    The last axis is the fastest. Without axes there is one place, which has no texts.
    """
    names: list[str] = []
    texts: list[list[tuple[str, ...]]] = []
    for dim in dims:
        own = list_coordinates(ds, dim)
        ends = [f" {get_unit(ds[name])}" if units and get_unit(ds[name]) else "" for name in own]
        rows = zip(*(ds[name].values for name in own), strict=True)
        texts.append(
            [tuple(format_value(v) + e for v, e in zip(row, ends, strict=True)) for row in rows]
        )
        names += own
    crossed = itertools.product(*texts)
    return tuple(names), [tuple(itertools.chain.from_iterable(parts)) for parts in crossed]


def spell_joint_axis(ds: xr.Dataset) -> xr.Dataset:
    """Replace the positions of a joint axis (`zip`) by the texts of its coordinates, each once."""
    if "zip" not in ds.dims:
        return ds
    _, texts = build_labels(ds, ["zip"], units=False)
    return ds.assign_coords(zip=[", ".join(parts) for parts in texts]).drop_duplicates("zip")


def swap_to_coordinate(ds: xr.Dataset, name: str, flag: str = "") -> xr.Dataset:
    """Make a coordinate the axis that it lies along, as one of the keys of a joint axis.

    Parameters
    ----------
    name : an axis, which stays as it is, or a coordinate along one whose values differ.
    flag : what an error's message begins with, as "paired: ".

    Raises
    ------
    UserError : where the result has no such axis, or equal values along it.
    """
    axes = list_axes(ds)
    if name in axes:
        return ds
    if name in ds.coords and ds[name].ndim == 1 and ds[name].dims[0] in axes:
        (dim,) = ds[name].dims
        if len(np.unique(ds[name].values)) == ds.sizes[dim]:
            return ds.swap_dims({dim: name})
        raise UserError(
            f"{flag}{name} ({format_values(ds[name])}) has the same value at several places of "
            f"{dim}; compare along {dim}, or pick some places with --sel"
        )
    if not axes:
        raise UserError(f"{flag}{name}: this result has no sweep, thus no such axis; sweep over it")
    raise make_unknown_name_error(f"{flag}{name}", "an axis of this result", name, axes)


def select_slices(ds: xr.Dataset, sel: Mapping[str, Sequence[Any]]) -> xr.Dataset:
    """Pick values of axes, or of coordinates along them.

    Parameters
    ----------
    sel : coordinate -> the values that are kept. Of one value the axis goes.

    Raises
    ------
    UserError : for an axis or a value that is not there.
    """
    for name, values in sel.items():
        ds = pick(ds, name, *values)
    return ds


def describe_slices(ds: xr.Dataset, sel: Mapping[str, Sequence[Any]]) -> str:
    """Write the values that were picked, as in "normalised SNR: 0 dB"; empty for none."""
    return "; ".join(
        ", ".join([format_coordinate(ds, name, values[0]), *map(format_value, values[1:])])
        for name, values in sel.items()
    )


AXES = ("x", "y", "z")
"""Attributes of a figure's data that name a variable or a dim."""


def write_labels(
    ds: xr.Dataset, labels: Mapping[str, str], known: Collection[str] = ()
) -> xr.Dataset:
    """Write labels in place of the values of choices, and beside the names of all else.

    Parameters
    ----------
    ds : a result, or what is made of one. Nothing is selected by the replaced values afterwards.
    labels : name of a variable or an axis, or text of a choice -> what is shown.
    known : names that may have a label and are not in `ds`.

    Returns
    -------
    The same data. Choices are replaced; variables and coordinates have the attribute `label`.

    Raises
    ------
    UserError : for a name of `labels` that is not there.
    """
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
        name: (ds[name].dims, np.array([labels.get(one, one) for one in own]), ds[name].attrs)
        for name, own in texts.items()
        if labels.keys() & set(own)
    }
    ds = ds.assign_coords(changed).copy()  # whose attributes are its own
    for name in labels.keys() & {str(one) for one in ds.variables}:
        ds[name].attrs["label"] = labels[name]
    for axis in AXES:
        if label := labels.get(ds.attrs.get(axis, "")):
            ds.attrs |= {f"{axis}_label": label, f"{axis}_short": label}
    return ds


def get_label(ds: xr.Dataset | xr.DataArray, name: str) -> str:
    """Return the label of a variable or coordinate, else its name in words."""
    return str(ds[name].attrs.get("label") or name.replace("_", " "))
