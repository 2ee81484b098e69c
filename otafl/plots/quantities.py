"""What the kinds of figures share on the way from a result to what is drawn: picking, the end of
each trial, sums over devices, the dims that are left, means and spreads over trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.figures import listed, pick, shown, unknown
from otafl.core.errors import UserError
from otafl.plots.style import label
from otafl.results.dataset import final

Selection = Mapping[str, Any]

SUMS = {
    "tx_energy_j": "energy radiated so far",
    "compute_energy_j": "energy spent on computing so far",
    "device_energy_j": "energy drawn so far",
}
"""Variables of a device that add up over devices (and causes), and what their sum is called."""

ADDED = {"device": "devices", "cause": "causes"}


def check_variable(ds: xr.Dataset, flag: str, name: str) -> None:
    """Raises UserError where the result has no such variable."""
    if name not in ds.data_vars:
        raise unknown(f"{flag} {name}", "a variable of this result", name, ds.data_vars)


def check_distinct(**names: str | None) -> None:
    """Raises UserError where two flags name the same dim."""
    given = [name for name in names.values() if name]
    if len(set(given)) < len(given):
        flags = [f"--{flag}" for flag in names]
        listing = f"{', '.join(flags[:-1])} and {flags[-1]}"
        raise UserError(f"{listing} must differ; got {', '.join(given)}")


def picked(ds: xr.Dataset, sel: Selection | None) -> xr.Dataset:
    """One value of each dim in `sel`; the positions of a joint axis say what they stand for."""
    for name, value in (sel or {}).items():
        ds = pick(ds, name, value)
    return spelled_out(ds)


def spelled_out(ds: xr.Dataset) -> xr.Dataset:
    """A joint axis (`zip`) labelled by its coordinates, as in "gbma, 10 dB", not by positions."""
    if "zip" not in ds.dims or ds["zip"].dtype.kind not in "iu":
        return ds
    along = [str(name) for name in ds.coords if ds[name].dims == ("zip",)]
    along = [name for name in along if name not in ("zip", "final_round")]
    if not along:
        return ds
    texts = [
        ", ".join(_with_units(ds[name], value) for name, value in zip(along, row, strict=True))
        for row in zip(*(ds[name].values for name in along), strict=True)
    ]
    unique = [text if texts.count(text) == 1 else f"{text} #{i}" for i, text in enumerate(texts)]
    said = ", ".join(str(ds[name].attrs.get("long_name", name)) for name in along)
    return ds.assign_coords(zip=("zip", unique, {"units": "1", "long_name": said}))


def along_coordinates(ds: xr.Dataset, drawn: Sequence[str], name: str) -> xr.Dataset:
    """Makes each coordinate that is to be drawn (of a joint axis) the dim it lies along.

    Raises UserError for what is no dim of the variable `name`, and for two along one dim.
    """
    turned: dict[str, str] = {}
    for one in drawn:
        if one in ds[name].dims:
            continue
        along = str(ds[one].dims[0]) if one in ds.coords and ds[one].ndim == 1 else ""
        if along in turned.values():
            raise UserError(
                f"{turned.get(along, along)} and {one} move together in this "
                "result; draw one of them"
            )
        if along and along in ds[name].dims:
            ds = ds.swap_dims({along: one})
            turned[along] = one
            continue
        raise unknown(one, f"a dim of {name}", one, [str(dim) for dim in ds[name].dims])
    return ds


def added_up(values: xr.DataArray, drawn: Sequence[str]) -> xr.DataArray:
    """A quantity of `SUMS` summed over the devices and causes that are not drawn; others as they
    are. `long_name` says so."""
    over = [dim for dim in ADDED if dim in values.dims and dim not in drawn]
    if values.name not in SUMS or not over:
        return values
    said = f"{SUMS[str(values.name)]}, sum over {' and '.join(ADDED[dim] for dim in over)}"
    total = values.sum(over, min_count=1, keep_attrs=True)
    return total.assign_attrs(long_name=said)


def held(ds: xr.Dataset, name: str) -> xr.DataArray:
    """The variable, constant from the record on at which a trial reached its target or ended:
    else the mean would jump to that of the trials that go on."""
    ends = [ds[early] for early in ("end_round", "stop_round") if early in ds]
    if not ends:
        return ds[name]
    end = ends[0] if len(ends) == 1 else ends[1].fillna(ends[0])
    after = (ds["round"] > end) & (ds["round"] <= ds["final_round"])
    return ds[name].where(~after, final(ds, name)).assign_attrs(ds[name].attrs)


def at_the_end(ds: xr.Dataset, name: str, drawn: Sequence[str]) -> xr.DataArray:
    """The variable where `round` is drawn or was picked, else its value at the end of the trials;
    summed where it adds up."""
    values = ds[name]
    if "round" in values.dims:
        values = held(ds, name) if "round" in drawn else final(ds, name)
    return added_up(values.rename(name), drawn)


def only_drawn(values: xr.DataArray, drawn: Sequence[str], flag: str = "--hue") -> xr.DataArray:
    """Without dims of one value that are not drawn; a longer one is the user's to settle.

    flag: what else, beside --facet, would draw a dim here.
    """
    for dim in values.dims:
        if dim in drawn or dim == "trial":
            continue
        if values.sizes[dim] > 1:
            ways = [f"{one} {dim}" for one in dict.fromkeys((flag, "--facet"))]
            first = shown(values[dim].values[0])
            raise UserError(
                f"{values.name} also depends on {dim} ({listed(values[dim])}); draw it with "
                f"{' or '.join(ways)}, or pick one with --sel {dim}={first}"
            )
        values = values.isel({dim: 0}, drop=True)
    return values


def mean_of(values: xr.DataArray, drawn: Sequence[str]) -> tuple[xr.DataArray, ...]:
    """Mean, standard deviation (with n - 1; NaN for one trial) and number of the finite trials,
    without the dim trial unless it is drawn."""
    if "trial" not in values.dims or "trial" in drawn:
        return values, xr.full_like(values, np.nan), values.notnull().astype(int)
    count = values.notnull().sum("trial")
    mean = values.mean("trial")
    std = (((values - mean) ** 2).sum("trial") / (count - 1).where(count > 1)) ** 0.5
    return mean, std, count


def statistics(values: xr.DataArray, drawn: Sequence[str]) -> xr.Dataset:
    """`mean_of` as variables mean, std, trials with the dims `drawn`."""
    names = ("mean", "std", "trials")
    return plain(xr.Dataset(dict(zip(names, mean_of(values, drawn), strict=True))), drawn)


def plain(data: xr.Dataset, drawn: Sequence[str]) -> xr.Dataset:
    """In memory, in this order of dims, without coordinates that are of no use in a figure."""
    return data.drop_vars("final_round", errors="ignore").transpose(*drawn).compute()


def labels(**values: xr.DataArray) -> dict[str, str]:
    """Attributes x_label, y_label ... of the data that are drawn."""
    return {f"{axis}_label": label(one, str(one.name)) for axis, one in values.items()}


def lost_note(ds: xr.Dataset) -> str:
    """Means over the trials that survived must say how many did not. ds: after `picked`."""
    if "diverged_round" not in ds:
        return ""
    lost = int(ds["diverged_round"].notnull().sum())
    plural = "trial" if lost == 1 else "trials"
    return f"without {lost} {plural} from the round of divergence on" if lost else ""


def _with_units(coordinate: xr.DataArray, value: Any) -> str:
    units = coordinate.attrs.get("units", "1")
    return shown(value) if units in ("1", "") else f"{shown(value)} {units}"
