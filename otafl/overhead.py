"""Communication overhead: what it cost until a target was reached (FedRLR's Table II).

Table II counts sub-carriers for one real number each. Over the air all devices share them. An
orthogonal upload gives each device its own, and there the table counts ONE device's: 75 rounds of
268,800 reals are its 2.02e7, where ten devices take ten times that. `symbols_per_round` has both
counts, so rounds to the target times either of them are the overhead by that count.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
import yaml

from otafl.errors import UserError

COSTS = ("uplink_symbols", "side_symbols", "airtime_s", "sim_time_s")
ENERGIES = ("tx_energy_j", "compute_energy_j")

COUNTS: dict[str, Literal["shared", "one", "all"]] = {
    "over_the_air": "shared",
    "ideal": "one",
    "digital": "all",
}
"""Whose symbols a transport's `uplink_symbols` are: those that all devices share, the longest
device's (an error-free slot), or those of all devices, one after the other."""


def to_reach(result: xr.Dataset, variable: str, target: float) -> xr.Dataset:
    """For each point and trial, the first record at which a variable is at or above the target.

    result: as `open_results` gives it. variable: one that has `round` and no `device`. Returns
    `round` (the round of that record: rounds between records are not evaluated) and what had been
    spent by then: `uplink_symbols` as the transport counts them (`COUNTS`), `side_symbols`,
    `airtime_s`, `sim_time_s`, and `tx_energy_j` and `compute_energy_j` summed over devices, as far
    as the result has them. NaN where a trial never got there. Raises UserError for a variable that
    cannot be asked.
    """
    able = sorted(
        str(name) for name, v in result.items() if "round" in v.dims and "device" not in v.dims
    )
    if variable not in able:
        raise UserError(
            f"to_reach: {variable!r} is not recorded round by round for a whole trial; there are "
            + ", ".join(able)
        )
    rounds = result["round"]
    first = rounds.where(result[variable] >= target).min("round")
    first.attrs = {"units": "round", "long_name": f"first record of {variable} >= {target:g}"}
    out = {"round": first}
    for name in (*COSTS, *ENERGIES):
        if name not in result:  # of a result kept without its per-device values
            continue
        values = result[name]
        if "device" in values.dims:
            values = values.sum("device", min_count=1, keep_attrs=True)
        out[name] = values.where(rounds == first).max("round", keep_attrs=True)
    return xr.Dataset(out).drop_vars("final_round", errors="ignore")


def symbols_per_round(result: xr.Dataset, devices: Literal["one", "all"] = "one") -> xr.DataArray:
    """Uplink channel uses a round, mean over the rounds that a trial ran, side information aside.

    devices: "one" counts what a single device sends, as Table II does, "all" what the uploads of
    all participants take; over the air they share it, and both are the same. Returns dims (sweep
    axes, trial). Raises UserError for a transport that this does not know.
    """
    spent = result["uplink_symbols"]
    rounds = result["round"].where(spent.notnull()).max("round")
    symbols = spent.max("round") / rounds
    since = result["round"].diff("round")  # participants are means since the record before
    took_part = result["participants"].sel(round=since["round"])
    participants = took_part.weighted(since).mean("round")
    counted = _counted(result)
    factor = xr.ones_like(participants)
    if devices == "one":
        factor = factor.where(counted != "all", 1.0 / participants)
    else:
        factor = factor.where(counted != "one", participants)
    out = (symbols * factor).drop_vars("final_round", errors="ignore")
    out.attrs = {"units": "symbol", "long_name": f"uplink channel uses a round, {devices} device"}
    return out.transpose(*symbols.dims)


def _counted(result: xr.Dataset) -> xr.DataArray:
    """`COUNTS` of each point's transport: along the sweep's axis, or that of the scenario."""
    if "transport" in result.coords:
        names = result["transport"]
    else:
        section = yaml.safe_load(result.attrs["scenario"])["transport"]
        names = xr.DataArray(section if isinstance(section, str) else section["name"])
    plain = [str(name).partition("(")[0] for name in names.values.ravel()]
    for name in plain:
        if name not in COUNTS:
            raise UserError(
                f"symbols_per_round: whose symbols transport '{name}' counts is not known; it is "
                f"of {', '.join(COUNTS)}"
            )
    kinds = [COUNTS[name] for name in plain]
    return names.copy(data=np.array(kinds).reshape(names.shape))
