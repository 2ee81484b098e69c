"""Communication overhead: what it cost until a target was reached (FedRLR's Table II).

Table II counts sub-carriers for one real number each. Over the air all devices share them. An
orthogonal upload gives each device its own, and there the table counts ONE device's: 75 rounds of
268,800 reals are its 2.02e7, where ten devices take ten times that. `symbols_per_round` has both
counts, so rounds to the target times either of them are the overhead by that count.
"""

from __future__ import annotations

import contextlib
from typing import Literal

import numpy as np
import xarray as xr
import yaml

from otafl.core.errors import UserError

COSTS = ("uplink_symbols", "side_symbols", "airtime_s", "sim_time_s")
ENERGIES = ("tx_energy_j", "compute_energy_j", "device_energy_j")

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
    `airtime_s`, `sim_time_s`, summed over devices `tx_energy_j` (radiated), `compute_energy_j` and
    `device_energy_j` (drawn, with dim cause), and `energy_j`, which is the latter of all causes; as
    far as the result has them. Beside these `device_symbols`, the symbols that the devices sent one
    and all, and `bandwidth_time`, airtime times bandwidth. NaN where a trial never got there.
    Raises UserError for a variable that cannot be asked.
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
    for name, values in _spent(result).items():
        if "device" in values.dims:
            values = values.sum("device", min_count=1, keep_attrs=True)
        out[name] = values.where(rounds == first).max("round", keep_attrs=True)
    if "device_energy_j" in out:
        about = {"units": "J", "long_name": "energy drawn by all devices"}
        out["energy_j"] = out["device_energy_j"].sum("cause", skipna=False).assign_attrs(about)
    return xr.Dataset(out).drop_vars("final_round", errors="ignore")


def soonest(result: xr.Dataset, over: str, target: float) -> xr.Dataset:
    """The result at that value of an axis, chosen at every point of the others, which is first
    within a hundredth of a target on validation data, in the mean over trials.

    A trial may stop before it is at the target itself; one that never gets there counts as ten
    times the longest. over: the axis, as `learning_rate`. Raises UserError for an axis that is not
    there, and for a result without validation data.
    """
    if over not in result.dims:
        have = ", ".join(map(str, result["final_round"].dims)) or "none"
        raise UserError(f"soonest: {over!r} is no axis of this result; it has {have}")
    rounds = to_reach(result, "validation_accuracy", target - 0.01)["round"]
    late = rounds.fillna(10.0 * float(result["round"].max()))
    return result.isel({over: late.mean("trial").argmin(over)})


def _spent(result: xr.Dataset) -> dict[str, xr.DataArray]:
    """What has been spent by each record, as far as that is known."""
    # a result kept without its per-device values lacks some
    out = {name: result[name] for name in (*COSTS, *ENERGIES) if name in result}
    if "uplink_symbols" in result and "participants" in result:
        with contextlib.suppress(UserError):  # a transport whose count is not known
            out["device_symbols"] = _device_symbols(result)
    bandwidth = _bandwidth_hz(result)
    if bandwidth is not None and "airtime_s" in out:
        about = {"units": "Hz s", "long_name": "uplink airtime times bandwidth"}
        out["bandwidth_time"] = (out["airtime_s"] * bandwidth).assign_attrs(about)
    return out


def _device_symbols(result: xr.Dataset) -> xr.DataArray:
    """Symbols sent by all devices together so far: those of an upload that only one is counted of,
    or that all share, times the participants (their mean since the record before)."""
    symbols = result["uplink_symbols"].diff("round")
    each = result["participants"].sel(round=symbols["round"])
    sent = symbols * each.where(_counted(result) != "all", 1.0)
    so_far = sent.cumsum("round").assign_coords(round=symbols["round"]).where(symbols.notnull())
    so_far = so_far.reindex(round=result["round"])
    so_far = so_far.where(result["round"] != result["round"][0], 0.0)
    about = {"units": "symbol", "long_name": "symbols that devices sent, added up over them"}
    return so_far.transpose(*result["uplink_symbols"].dims).assign_attrs(about)


def _bandwidth_hz(result: xr.Dataset) -> xr.DataArray | float | None:
    """Of each point; None where choices of channels that are swept may say it."""
    if "bandwidth_hz" in result.coords:
        return result["bandwidth_hz"]
    if "channel" in result.coords and any("bandwidth" in str(c) for c in result["channel"].values):
        return None
    channel = yaml.safe_load(result.attrs["scenario"]).get("channel")
    return channel.get("bandwidth_hz") if isinstance(channel, dict) else None


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
