"""Timelines whose seconds are known, for the tests of tables and charts."""

from __future__ import annotations

import numpy as np
import xarray as xr

from otafl.analysis import timeline
from otafl.devices.hardware import ACTIVITIES
from otafl.results.variables import VARIABLES

NAN = float("nan")


EVENTS = [
    [  # of trial 0: device, round, activity, start, end
        (0, 0, "receive", 0.0, 1.0),
        (1, 0, "receive", 0.0, 1.0),
        (0, 0, "compute", 1.0, 3.0),
        (1, 0, "lost", 1.0, 4.0),
        (0, 0, "wait", 3.0, 5.0),
        (1, -1, "empty", 4.0, 8.0),
        (1, -1, "left", 6.0, 10.0),
        (0, 0, "transmit", 5.0, 6.0),
        (2, 1, "transmit", 9.0, 10.0),
    ],
    [(2, 0, "transmit", 2.0, 3.0)],
]


def make_result() -> xr.Dataset:
    """Two trials of three devices; the first trial's events in reverse, as no order is promised."""
    columns = np.full((5, 2, 9), NAN)
    for trial, events in enumerate([EVENTS[0][::-1], EVENTS[1]]):
        for place, (device, round, activity, *times) in enumerate(events):
            columns[:, trial, place] = device, round, ACTIVITIES.index(activity), *times
    names = [f"timeline_{name}" for name in timeline.COLUMNS]
    data = {
        name: (("trial", "event"), column, {"units": VARIABLES[name].units})
        for name, column in zip(names, columns, strict=True)
    }
    data["sim_time_s"] = (("trial", "round"), np.array([[0.0, 12.0], [0.0, 3.0]]))
    data["updates_started"] = (("trial", "round"), np.array([[0.0, 4.0], [0.0, NAN]]))
    data["updates_lost"] = (("trial", "round"), np.array([[0.0, 1.0], [0.0, 0.0]]))
    data["tx_energy_j"] = (("trial", "round", "device"), np.zeros((2, 2, 3)))
    return xr.Dataset(data, {"trial": [0, 1], "round": [0, 5]}, {"title": "three"})


def to_rows(events: xr.Dataset) -> list[tuple]:
    return list(zip(*(events[name].values.tolist() for name in timeline.COLUMNS), strict=True))


def make_swept_result() -> xr.Dataset:
    """Two points; the second has a trial 1 alone, and two devices."""
    other = make_result()
    other["tx_energy_j"][..., 2] = NAN
    for name in timeline.COLUMNS:
        other[f"timeline_{name}"][0] = NAN
    other["timeline_device"] = other["timeline_device"] * 0.5
    axis = xr.DataArray([0, 10], dims="snr_db", name="snr_db", attrs={"units": "dB"})
    both = xr.concat([make_result(), other], axis, data_vars="all", combine_attrs="override")
    both = both.assign_coords(final_round=("snr_db", [5.0, 5.0]))
    return both.assign_attrs(title="three")
