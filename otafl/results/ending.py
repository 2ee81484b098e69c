"""Take the value of a variable at the end of a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from otafl.core.errors import UserError
from otafl.core.words import unknown

if TYPE_CHECKING:
    import xarray as xr


def final(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Return a variable of a combined dataset at the end of each trial, without `round`: the last
    record of the point, or that at which the trial reached its target or ended. NaN for a trial
    that diverged."""
    values = dataset[name]
    if "round" not in values.dims:
        return values
    ends = dataset["final_round"]
    for early in ("end_round", "stop_round"):
        if early in dataset:
            ends = dataset[early].fillna(ends)
    values = values.where(values["round"] == ends).max("round", keep_attrs=True)
    return values.drop_vars("final_round", errors="ignore")


SUMS = {
    "tx_energy_j": "energy radiated so far",
    "compute_energy_j": "energy spent on computing so far",
    "device_energy_j": "energy drawn so far",
}
"""Variables of a device that add up over devices (and causes), and what their sum is called."""

ADDED = {"device": "devices", "cause": "causes"}


def added_up(values: xr.DataArray, drawn: Collection[str] = ()) -> xr.DataArray:
    """Return a quantity of `SUMS` summed over the devices and causes that are not drawn, and others
    as they are. `long_name` says so."""
    over = [dim for dim in ADDED if dim in values.dims and dim not in drawn]
    if values.name not in SUMS or not over:
        return values
    said = f"{SUMS[str(values.name)]}, sum over {' and '.join(ADDED[dim] for dim in over)}"
    total = values.sum(over, min_count=1, keep_attrs=True)
    return total.assign_attrs(long_name=said)


def ended(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Return a variable at the end of each trial, with dims (sweep axes, trial).

    Joules are added up over devices and causes, other values of devices are averaged.
    Raises UserError for a variable that is not there, or has other dims.
    """
    if name not in dataset.data_vars:
        raise unknown(str(name), "a variable of this result", name, dataset.data_vars)
    values = added_up(final(dataset, name).rename(name))
    values = values.mean([dim for dim in ADDED if dim in values.dims], keep_attrs=True)
    axes = dataset["final_round"].dims
    more = [str(dim) for dim in values.dims if dim not in (*axes, "trial")]
    if more or "trial" not in values.dims:
        lacks = f"also depends on {', '.join(more)}" if more else "has no trials"
        raise UserError(f"{name}: {lacks}; give a variable of whole trials, like test_accuracy")
    return values.transpose(*axes, "trial")
