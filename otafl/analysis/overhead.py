"""Count the overhead of communication: what it cost until a target was reached.

Table II of FedRLR counts sub-carriers for one real number each. Over the air all devices share
them. An orthogonal upload gives each device its own, and there the table counts ONE device's: 75
rounds of 268,800 reals are its 2.02e7, where ten devices take ten times that.
`compute_symbols_per_round` has the former count, so rounds to the target times it are the overhead.

References
----------
Xue, Lau 2023, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
    Aggregation", Table II.
"""

from __future__ import annotations

import xarray as xr

from otafl.analysis.points import get_unit, list_axes
from otafl.analysis.tuning import find_validation_variable
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.results import header
from otafl.results.end_values import count_diverged
from otafl.results.variables import falls_to_target, is_reached

COSTS = (
    *("uplink_symbols", "side_symbols", "airtime_s", "sim_time_s"),
    *("tx_energy_j", "compute_energy_j", "device_energy_j"),
)
"""What adds up from round 0, as far as a result has it."""


def compute_cost_to_reach(result: xr.Dataset, variable: str, target: float) -> xr.Dataset:
    """Find the first record at which a variable reaches the target, and the cost up to it.

    A trial that diverged keeps its earlier records and counts as a guess afterwards
    (`results.end_values.count_diverged`). It may have reached the target before, but not with the
    diverged model.

    Parameters
    ----------
    result : xarray.Dataset
        Result of `open_results`.
    variable : str
        Variable with the dim `round` and without the dim `device`.
    target : float
        Value to reach, in the variable's unit: from below, or from above where less is better.

    Returns
    -------
    xarray.Dataset
        Costs with the dims (sweep axes, trial). `reached` is 1 if the trial reached the target, 0
        if not, and NaN if the trial did not run. All other variables are NaN for trials that did
        not reach it, so their means are over the trials that did. `round` is the round of the
        record. The costs are those that the result contains: `uplink_symbols` as the transport
        counts them, `side_symbols`, `airtime_s` and `sim_time_s`. The energies are sums over
        devices: `tx_energy_j` (radiated), `compute_energy_j`, `device_energy_j` (drawn, with the
        dim cause), and `energy_j`, the sum of the latter over causes.

    Raises
    ------
    UserError
        If the variable is not recorded round by round for a whole trial.
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
    values = count_diverged(result, [variable])[variable]
    sign = "<=" if falls_to_target(variable) else ">="
    first = rounds.where(is_reached(variable, values, target)).min("round")
    first.attrs = {"units": "round", "long_name": f"first record of {variable} {sign} {target:g}"}
    ran = result[variable].notnull().any("round")
    reached = first.notnull().astype(float).where(ran)
    reached.attrs = {"units": "1", "long_name": f"whether {variable} {sign} {target:g} was reached"}
    out = {"round": first, "reached": reached}
    for name in [name for name in COSTS if name in result]:  # a result kept small lacks some
        spent = result[name]
        if "device" in spent.dims:
            spent = spent.sum("device", min_count=1, keep_attrs=True)
        out[name] = spent.where(rounds == first).max("round", keep_attrs=True)
    if "device_energy_j" in out:
        about = {"units": "J", "long_name": "energy drawn by all devices"}
        joules = out["device_energy_j"]  # a result kept small has them summed already
        causes = [dim for dim in joules.dims if dim == "cause"]
        out["energy_j"] = joules.sum(causes, skipna=False).assign_attrs(about)
    return xr.Dataset(out).drop_vars("final_round", errors="ignore")


def tabulate_costs(result: xr.Dataset, variable: str, target: float) -> xr.Dataset:
    """Return `compute_cost_to_reach` as a result of which tables can be made.

    `rounds` is the round of the record, `best` the best value of the variable. The joules of
    each cause are variables, as `transmit_j`.
    """
    costs = compute_cost_to_reach(result, variable, target)
    values, falls = count_diverged(result, [variable])[variable], falls_to_target(variable)
    word = "lowest" if falls else "highest"
    about = {"units": get_unit(result[variable]) or "1", "long_name": f"{word} {variable}"}
    costs["best"] = (values.min if falls else values.max)("round").assign_attrs(about)
    if "cause" in costs.dims:
        causes = costs["device_energy_j"]
        for cause in costs["cause"].values:
            about = {"units": "J", "long_name": f"energy drawn by all devices, {cause}"}
            costs[f"{cause}_j"] = causes.sel(cause=cause, drop=True).assign_attrs(about)
        costs = costs.drop_dims("cause")
    costs = costs.rename(round="rounds").drop_vars("final_round", errors="ignore")
    return costs.assign_coords(final_round=result["final_round"]).assign_attrs(result.attrs)


def select_soonest(result: xr.Dataset, over: str, target: float) -> xr.Dataset:
    """Return the result at the value of an axis that is soonest at a target on validation data.

    The value is chosen at every point of the other axes, by the mean over trials of the first
    record that is within a hundredth of the target (of an error, a hundredth of its value). A trial
    that stopped at its own target before (`training.stop_at`) is there where it stopped. One that
    never gets there counts as ten times the longest.

    Parameters
    ----------
    over : the axis, as `learning_rate`.

    Raises
    ------
    UserError : for an axis that is not there, and for a result without validation data.
    """
    if over not in result.dims:
        have = ", ".join(list_axes(result)) or "none"
        raise UserError(f"soonest: {over!r} is no axis of this result; it has {have}")
    by = find_validation_variable(result)
    room = -0.01 * abs(target) if falls_to_target(by) else 0.01
    rounds = compute_cost_to_reach(result, by, target - room)["round"]
    if "stop_round" in result:
        rounds = rounds.fillna(result["stop_round"])
    late = rounds.fillna(10.0 * float(result["round"].max()))
    return result.isel({over: late.mean("trial").argmin(over)})


def compute_symbols_per_round(result: xr.Dataset) -> xr.DataArray:
    """Compute a device's uplink channel uses in a round, averaged over the rounds of a trial.

    They are counted as in Table II of FedRLR. Side information does not count.

    Parameters
    ----------
    result : xarray.Dataset
        Result of `open_results`.

    Returns
    -------
    xarray.DataArray
        Symbols with the dims (sweep axes, trial).

    Raises
    ------
    UserError
        If the result's transport is unknown.
    """
    spent = result["uplink_symbols"]
    rounds = result["round"].where(spent.notnull()).max("round")
    symbols = spent.max("round") / rounds
    since = result["round"].diff("round")  # participants are means since the record before
    took_part = result["participants"].sel(round=since["round"])
    participants = took_part.weighted(since).mean("round")
    if "transport" in result.coords:
        names = result["transport"]
    else:
        section = header.read_scenario(result.attrs)["transport"]
        names = xr.DataArray(section if isinstance(section, str) else section["name"])
    counted = xr.apply_ufunc(_find_counting_rule, names, vectorize=True)
    out = symbols / participants.where(counted == "all", 1.0)
    out = out.drop_vars("final_round", errors="ignore")
    out.attrs = {"units": "symbol", "long_name": "uplink channel uses of a device in a round"}
    return out.transpose(*symbols.dims)


def _find_counting_rule(label: str) -> str:
    """Return `counts` of a transport, whose label may tell its settings in parentheses."""
    name, known = label.partition("(")[0], registry.list_names("transport")
    if name not in known:
        raise UserError(
            f"symbols_per_round: whose symbols transport '{name}' counts is not known; it is of "
            f"{', '.join(known)}"
        )
    return str(registry.load_component("transport", name).counts)
