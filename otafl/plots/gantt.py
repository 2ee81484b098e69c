"""Draw a trial's timeline as a Gantt chart: a row a device, a bar for what it did.

The bars' heights distinguish work from absence, and activities have colours that differ in
lightness too. Uplink slots are light bands over all rows; a device that sleeps has no bar.

References
----------
Okabe, Ito 2008, "Color Universal Design".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from otafl.analysis.timeline import merge_intervals, select_window
from otafl.devices.hardware import ACTIVITIES
from otafl.plots.drawing import save
from otafl.plots.layout import make_figure


class Look(NamedTuple):
    """Appearance of an activity.

    Parameters
    ----------
    height : share of the row.
    edge : width of the outline in points, which keeps what is shorter than a pixel from vanishing.
    front : of two bars the one with the higher number covers the other.
    """

    colour: str
    height: float
    edge: float = 0.0
    front: int = 2


LOOKS: dict[str, Look] = {
    "receive": Look("#8CCBEE", 0.62),
    "compute": Look("#0072B2", 0.62),
    "wait": Look("0.45", 0.12),
    "transmit": Look("#8C2D04", 0.92, edge=0.6, front=4),
    "lost": Look("#E69F00", 0.62),
    "left": Look("0.87", 0.94, front=1),
    "empty": Look("#B07AA1", 0.94, front=1),
}
SLOT = "#FBE6D4"
READABLE = 60
"""More events than this in a row run into each other."""
MAX_NAMED = 32
"""Rows whose device is named; of more, every nth."""


def find_readable_time(events: xr.Dataset) -> float:
    """Return the time until which rows have READABLE events in the mean.

    It is the trial's end where there are fewer.
    """
    count = READABLE * int(events.attrs["devices"])
    starts, end_s = events["start_s"].values, float(events.attrs["end_s"])
    return end_s if len(starts) <= count else float(starts[count])


def draw_chart(
    events: xr.Dataset,
    path: Path | str | None = None,
    start_s: float | None = None,
    until_s: float | None = None,
) -> Figure:
    """Draw events, clipped to a window.

    Parameters
    ----------
    events : as `extract_timeline` gives them.
    path : of a PNG, PDF or SVG file; None: it is not saved.
    start_s, until_s : as `timeline.select_window` takes them.

    Raises
    ------
    UserError : for an empty window, and for a file that cannot be written.
    """
    part = select_window(events, start_s, until_s)
    devices = part.attrs["devices"]
    # a row of 200 devices still has its pixels, and three devices do not fill a page
    figure = make_figure((10.0, 1.1 + min(max(0.3 * devices, 1.5), 8.0)))
    ax = figure.subplots()
    # draw the bars of each activity that occurs
    row = part["device"].values
    start = np.maximum(part["start_s"].values, part.attrs["start_s"])
    end = np.minimum(part["end_s"].values, part.attrs["until_s"])
    activity = part["activity"].values
    for name in (name for name in ACTIVITIES if name in activity):
        chosen = activity == name
        look, y = LOOKS[name], row[chosen]
        style: dict[str, Any] = {
            "facecolor": look.colour,
            "edgecolor": look.colour,
            "linewidth": look.edge,
            "zorder": look.front,
        }
        corners = start[chosen], end[chosen], y - look.height / 2, y + look.height / 2
        _draw_rectangles(ax, corners, label=name, **style)
    _draw_slots(ax, part)
    ax.set_xlim(part.attrs["start_s"], part.attrs["until_s"])
    ax.set_ylim(devices - 0.4, -0.6)
    ax.set_yticks(range(0, devices, -(-devices // MAX_NAMED)))
    ax.set(xlabel="simulated time [s]", ylabel="device")
    ax.spines[["top", "right"]].set_visible(False)
    if ax.collections:
        figure.legend(loc="outside right upper", handlelength=1.6)
    figure.suptitle(part.attrs["title"], fontsize=10)
    if path is not None:
        save(figure, path)
    return figure


def _draw_slots(ax: Axes, slots: xr.Dataset) -> None:
    """Draw the uplink slots, over all rows."""
    sending = slots["activity"].values == "transmit"
    start, end = merge_intervals(slots["start_s"].values[sending], slots["end_s"].values[sending])
    if not len(start):
        return
    corners = start, end, np.zeros_like(start), np.ones_like(start)
    style: dict[str, Any] = {"color": SLOT, "linewidth": 0.8, "zorder": 0}
    _draw_rectangles(ax, corners, label="uplink slot", transform=ax.get_xaxis_transform(), **style)


def _draw_rectangles(ax: Axes, corners: tuple[np.ndarray, ...], **style: Any) -> None:
    """Draw n rectangles. corners: left, right, low and high, [n] each."""
    x0, x1, low, high = corners
    places = np.stack([x0, low, x0, high, x1, high, x1, low], 1).reshape(-1, 4, 2)
    ax.add_collection(PolyCollection(list(places), **style), autolim=False)
