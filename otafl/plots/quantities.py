"""Turn a result into what is drawn: pick, take the end of each trial, add up, and average.

The kinds of figures share these steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.cautions import describe_mixed_budgets
from otafl.analysis.points import format_label, format_short_label, get_unit, list_coordinates
from otafl.core.errors import UserError
from otafl.core.suggestions import make_unknown_name_error
from otafl.results.coordinates import format_value, format_values, get_long_name, pick
from otafl.results.end_values import (
    count_diverged,
    describe_diverged,
    select_at_end,
    sum_over_devices,
)

Selection = Mapping[str, Any]


def check_variable(ds: xr.Dataset, flag: str, name: str) -> None:
    """Raise UserError where the result has no such variable."""
    if name not in ds.data_vars:
        raise make_unknown_name_error(
            f"{flag} {name}", "a variable of this result", name, ds.data_vars
        )


def select_values(ds: xr.Dataset, sel: Selection | None, **drawn: str | None) -> xr.Dataset:
    """Pick one value of each dim in `sel`; positions of a joint axis say what they stand for.

    Trials that diverged count as guesses (`results.end_values.count_diverged`).

    drawn: flag -> dim. Raises UserError where two flags name the same dim, and as `pick`.
    """
    given = [name for name in drawn.values() if name]
    if len(set(given)) < len(given):
        flags = [f"--{flag}" for flag in drawn]
        listing = f"{', '.join(flags[:-1])} and {flags[-1]}"
        raise UserError(f"{listing} must differ; got {', '.join(given)}")
    ds = count_diverged(ds)
    for name, value in (sel or {}).items():
        ds = pick(ds, name, value)
    return label_joint_axis(ds)


def label_joint_axis(ds: xr.Dataset) -> xr.Dataset:
    """Label a joint axis (`zip`) by its coordinates, as in "gbma, 10 dB", not by positions.

    Coordinates with the same value everywhere are left out.
    """
    if "zip" not in ds.dims or ds["zip"].dtype.kind not in "iu":
        return ds
    names = list_coordinates(ds, "zip")
    if names == ["zip"]:
        return ds
    names = [name for name in names if len(set(ds[name].values.tolist())) > 1] or names
    rows = (ds.isel(zip=place) for place in range(ds.sizes["zip"]))
    texts = [", ".join(name_value(row[name]) for name in names) for row in rows]
    unique = [text if texts.count(text) == 1 else f"{text} #{i}" for i, text in enumerate(texts)]
    said = ", ".join(get_long_name(ds, name) for name in names)
    return ds.assign_coords(zip=("zip", unique, {"units": "1", "long_name": said}))


def name_value(coordinate: xr.DataArray) -> str:
    """Write one value of a coordinate with what makes it plain: "10 dB", "gbma", "local steps 5".

    A coordinate that has a label, such as "SNR" or "SNR [dB]", has it before its value.
    """
    unit = get_unit(coordinate)
    text = f"{format_value(coordinate.values)} {unit}".rstrip()
    if label := str(coordinate.attrs.get("label", "")):
        return f"{label.removesuffix(f' [{unit}]')} {text}"
    is_bare = not unit and coordinate.dtype.kind in "biuf"
    return f"{str(coordinate.name).replace('_', ' ')} {text}" if is_bare else text


def swap_to_coordinates(ds: xr.Dataset, drawn_dims: Sequence[str], name: str) -> xr.Dataset:
    """Make each coordinate that is to be drawn (of a joint axis) the dim it lies along.

    Raises UserError for what is no dim of the variable `name`, and for two along one dim.
    """
    turned: dict[str, str] = {}
    for one in drawn_dims:
        if one in ds[name].dims:
            continue
        along = str(ds[one].dims[0]) if one in ds.coords and ds[one].ndim == 1 else ""
        if along in turned.values():
            raise UserError(
                f"{turned.get(along, along)} and {one} move together in this "
                "result; draw one of them"
            )
        if not along or along not in ds[name].dims:
            raise make_unknown_name_error(one, f"a dim of {name}", one, ds[name].dims)
        ds = ds.swap_dims({along: one})
        turned[along] = one
    return ds


def hold_last_value(ds: xr.Dataset, name: str) -> xr.DataArray:
    """Return a variable that is constant from the end of each trial on, up to the point's end.

    Else the mean would jump to that of the trials that continue.
    """
    last = select_at_end(ds.assign(last=ds["round"] + 0.0), "last")
    after = (ds["round"] > last) & (ds["round"] <= ds["final_round"])
    return ds[name].where(~after, select_at_end(ds, name)).assign_attrs(ds[name].attrs)


def select_end(ds: xr.Dataset, name: str, drawn_dims: Sequence[str]) -> xr.DataArray:
    """Return a variable along `round` where that is drawn or was picked, else at the trials' end.

    It is summed where it adds up.
    """
    ds = count_diverged(ds, [name])
    values = ds[name]
    if "round" in values.dims:
        values = hold_last_value(ds, name) if "round" in drawn_dims else select_at_end(ds, name)
    return sum_over_devices(values.rename(name), drawn_dims)


def squeeze_undrawn(
    values: xr.DataArray, drawn_dims: Sequence[str], flag: str = "--hue"
) -> xr.DataArray:
    """Drop dims of one value that are not drawn; a longer one is the user's to settle.

    flag: what else, beside --facet, would draw a dim here.
    """
    for dim in values.dims:
        if dim in drawn_dims or dim == "trial":
            continue
        if values.sizes[dim] > 1:
            ways = [f"{one} {dim}" for one in dict.fromkeys((flag, "--facet"))]
            first = format_value(values[dim].values[0])
            raise UserError(
                f"{values.name} also depends on {dim} ({format_values(values[dim])}); draw it with "
                f"{' or '.join(ways)}, or pick one with --sel {dim}={first}"
            )
        values = values.isel({dim: 0}, drop=True)
    return values


def select_quantity(
    ds: xr.Dataset, name: str, drawn_dims: Sequence[str], flag: str = "--hue"
) -> tuple[xr.Dataset, xr.DataArray]:
    """Return the result with the dims `drawn_dims`, and a variable of it with these and trial."""
    ds = swap_to_coordinates(ds.assign({name: select_end(ds, name, drawn_dims)}), drawn_dims, name)
    return ds, squeeze_undrawn(ds[name], drawn_dims, flag)


def compute_statistics(values: xr.DataArray, drawn_dims: Sequence[str]) -> xr.Dataset:
    """Compute mean, standard deviation (n - 1; NaN for one trial) and number of the finite trials.

    Returns mean, std and trials in memory, with the dims `drawn_dims` in this order and without
    coordinates that are of no use in a figure.
    """
    mean, std, count = values, xr.full_like(values, np.nan), values.notnull().astype(int)
    if "trial" in values.dims and "trial" not in drawn_dims:
        mean, count = values.mean("trial"), values.notnull().sum("trial")
        std = (((values - mean) ** 2).sum("trial") / (count - 1).where(count > 1)) ** 0.5
    found = xr.Dataset({"mean": mean, "std": std, "trials": count})
    return found.drop_vars("final_round", errors="ignore").transpose(*drawn_dims).compute()


def build_attributes(
    kind: str, ds: xr.Dataset, axes: Mapping[str, xr.DataArray], **names: str | None
) -> dict[str, str]:
    """Return the attributes of a drawn variable (`kinds.FigureRecipe`).

    ds: after `select_values`. axes: "x" and so on -> what is drawn along it. names: what was asked
    for.
    """
    found = {"kind": kind} | {flag: name or "" for flag, name in names.items()}
    for axis, values in axes.items():
        name = str(values.name)
        found[f"{axis}_label"] = label = format_label(values, name)
        found[f"{axis}_short"] = label if name in ds.coords else format_short_label(values, name)
    notes = describe_diverged(ds), describe_mixed_budgets(ds)
    return found | {"note": "; ".join(filter(None, notes))}
