"""Timeline of one trial: the events of every device, and the seconds of each activity.

`otafl.plots.gantt` draws it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.points import describe_slices, list_axes, select_slices
from otafl.analysis.summary import format_number, make_table
from otafl.core.console import make_console
from otafl.core.errors import UserError
from otafl.core.suggestions import format_count
from otafl.devices.hardware import ACTIVITIES
from otafl.results.coordinates import format_value, format_values

COLUMNS = ("device", "round", "activity", "start_s", "end_s")
TABLES = {name: f"timeline_{name}" for name in COLUMNS}
"""Column -> variable of a result."""
UPDATES = {
    "updates_started": "started",
    "updates_used": "aggregated",
    "updates_lost": "lost before their slot",
    "crashed_updates": "cut off in their slot",
}
"""Variable of a result -> outcome of the updates that it counts."""
ASLEEP = "asleep"


def extract_timeline(ds: xr.Dataset, trial: int = 0, **sel: Any) -> xr.Dataset:
    """Return the events of one trial, in the order of their start.

    Parameters
    ----------
    ds : xarray.Dataset
        Result of a scenario with `output.save_timeline: true`.
    trial : int, default 0
        Number of the trial.
    **sel : Any
        Coordinates `name=value` that select a point of a sweep.

    Returns
    -------
    xarray.Dataset
        Events with the dim event: device, round (in which the update was started, -1 for an absent
        device), activity (of `otafl.devices.hardware.ACTIVITIES`), start_s and end_s in seconds.
        The attributes are title, devices, end_s (simulated seconds of the trial) and, if the result
        has them, updates_started, updates_used, updates_lost and crashed_updates of the whole
        trial.

    Raises
    ------
    UserError
        If the result has no timeline, no such trial or no such point, or if several points are
        left.
    """
    if not set(TABLES.values()) <= set(ds.data_vars):
        raise UserError(
            "this result has no timeline; run its scenario again with output.save_timeline: true "
            "(--set output.save_timeline=true)"
        )
    if trial not in ds["trial"]:
        raise UserError(f"trial {trial}: no such trial; there are {format_values(ds['trial'])}")
    title = str(ds.attrs.get("title", ""))
    wanted = [*TABLES.values(), "sim_time_s", "tx_energy_j", *UPDATES]
    ds = ds[[name for name in wanted if name in ds]].sel(trial=trial)
    slices = {name: [value] for name, value in sel.items()}
    ds, whole = select_slices(ds, slices), ds
    picked = describe_slices(whole, slices)
    for dim in list_axes(ds):
        if ds.sizes[dim] > 1:
            raise UserError(
                f"the timeline also depends on {dim} ({format_values(ds[dim])}); pick one with "
                f"--sel {dim}={format_value(ds[dim].values[0])}"
            )
    ds = ds.isel(dict.fromkeys(list_axes(ds), 0))
    # the columns [events] of a point, without the padding
    there = np.isfinite(ds["timeline_start_s"].values)
    columns = {name: ds[table].values[there] for name, table in TABLES.items()}
    order = np.lexsort((columns["device"], columns["start_s"]))
    columns = {
        name: values[order] if name.endswith("_s") else values[order].astype(np.int64)
        for name, values in columns.items()
    }
    columns = columns | {"activity": np.array(ACTIVITIES)[columns["activity"]]}
    ends = (0.0, *columns["end_s"], *_drop_nan(ds, "sim_time_s"))
    counts = {name: int(values[-1]) for name in UPDATES if len(values := _drop_nan(ds, name))}
    devices = int(columns["device"].max(initial=-1)) + 1
    if "tx_energy_j" in ds:  # smaller points of a sweep are padded with NaN
        devices = max(devices, int(ds["tx_energy_j"].notnull().any("round").sum()))
    about = {
        "title": ", ".join(filter(None, (title, f"trial: {trial}", picked))),
        "devices": devices,
        "end_s": float(max(ends)),
    }
    said = {name: {} if name == "activity" else ds[TABLES[name]].attrs for name in COLUMNS}
    events = {name: ("event", values, said[name]) for name, values in columns.items()}
    return xr.Dataset(events, attrs=about | counts)


def _drop_nan(ds: xr.Dataset, name: str) -> np.ndarray:
    """Return the records of a variable that there are, [n]."""
    values = ds[name].values if name in ds else np.empty(0)
    return values[np.isfinite(values)]


def select_window(
    events: xr.Dataset,
    start_s: float | None = None,
    until_s: float | None = None,
) -> xr.Dataset:
    """Select the events that lie in part or whole in a window of time.

    Parameters
    ----------
    events : as `extract_timeline` gives them.
    start_s, until_s : of the window; None: where the trial starts and ends.

    Returns
    -------
    The attributes start_s and until_s are the window's ends.

    Raises
    ------
    UserError : for an empty window.
    """
    end_s = events.attrs["end_s"]
    start_s = 0.0 if start_s is None else start_s
    until_s = end_s if until_s is None else min(until_s, end_s)
    if not 0 <= start_s < until_s:
        raise UserError(
            f"--from {start_s:g} --until {until_s:g}: no time between them; the trial took "
            f"{end_s:g} s"
        )
    inside = (events["end_s"] > start_s) & (events["start_s"] < until_s)
    return events.isel(event=inside.values).assign_attrs(start_s=start_s, until_s=until_s)


def sum_by_activity(part: xr.Dataset) -> xr.Dataset:
    """Add up what `select_window` gives, by activity.

    Returns
    -------
    With dim activity: events, seconds of all devices together that lie in the window, and their
    share of the devices' time. Activities are those that occur, and "asleep" for what is left:
    there, and with nothing to do. A device that is away for two reasons at once counts for both.
    """
    start_s, until_s = part.attrs["start_s"], part.attrs["until_s"]
    start = np.maximum(part["start_s"].values, start_s)
    end = np.minimum(part["end_s"].values, until_s)
    activity = part["activity"].values
    names = [name for name in ACTIVITIES if name in activity]
    events = [float((activity == name).sum()) for name in names]
    seconds = [float((end - start)[activity == name].sum()) for name in names]
    device_s = part.attrs["devices"] * (until_s - start_s)
    # one after the other on one axis, so that intervals of two devices never meet
    shift = part["device"].values * 2.0 * (until_s - start_s) - start_s
    starts, ends = merge_intervals(start + shift, end + shift)
    asleep_s = device_s - float((ends - starts).sum())
    if asleep_s > 1e-9 * device_s:
        names, events, seconds = [*names, ASLEEP], [*events, np.nan], [*seconds, asleep_s]
    share = np.array(seconds) / device_s
    columns = {
        "events": ("activity", events),
        "seconds": ("activity", seconds, {"units": "s"}),
        "share": ("activity", share, {"units": "1"}),
    }
    return xr.Dataset(columns, {"activity": names})


def merge_intervals(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends of the union of intervals [n], in order of time."""
    if not len(start):
        return start, end
    order = np.argsort(start)
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.r_[True, start[1:] > reach[:-1]]
    return start[first], reach[np.r_[first[1:], True]]


def print_totals(part: xr.Dataset) -> None:
    """Print `sum_by_activity`, and the updates of the whole trial."""
    console = make_console()
    about, table = part.attrs, make_table()
    for title in ("activity", "events", "device seconds", "share of time"):
        table.add_column(title, justify="left" if title == "activity" else "right")
    for row in sum_by_activity(part).to_dataframe().itertuples():
        count = "-" if np.isnan(row.events) else f"{row.events:.0f}"
        table.add_row(str(row.Index), count, format_number(row.seconds), f"{100 * row.share:.1f} %")
    start_s, until_s, end_s = (
        format_number(about[name]) for name in ("start_s", "until_s", "end_s")
    )
    span = f"{start_s} to {until_s} s of {end_s} s"
    console.print(
        f"{about['title']}: {format_count(about['devices'], 'device')}, {span}\n", soft_wrap=True
    )
    console.print(table)
    counts = [f"{about[name]} {said}" for name, said in UPDATES.items() if about.get(name)]
    if counts:
        console.print(f"\nupdates of the whole trial: {', '.join(counts)}", soft_wrap=True)
