"""A trial's timeline as a Gantt chart: a row a device, a bar for what it did.

Work is told from its being away by the bars' heights, activities by colours that differ in
lightness too (after Okabe and Ito 2008, "Color Universal Design") and, where rows are high enough,
by hatches. Uplink slots are light bands over all rows; a device that sleeps has no bar.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.figures import check_suffix, save
from otafl.analysis.timeline import merged, window
from otafl.devices.activities import ACTIVITIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Look(NamedTuple):
    """How an activity is drawn. height: share of the row. edge: width of the outline in points,
    which keeps what is shorter than a pixel from vanishing."""

    colour: str
    height: float
    hatch: str = ""
    edge: float = 0.0
    front: int = 2


LOOKS: dict[str, Look] = {
    "receive": Look("#8CCBEE", 0.62),
    "compute": Look("#0072B2", 0.62),
    "wait": Look("0.45", 0.12),
    "transmit": Look("#8C2D04", 0.92, edge=0.6, front=4),
    "lost": Look("#E69F00", 0.62, "xxxx"),
    "left": Look("0.87", 0.94, "////", front=1),
    "empty": Look("#D9A3C3", 0.94, "....", front=1),
    "crashed": Look("0.3", 0.94, edge=0.4, front=3),
}
SLOT = "#FBE6D4"
HATCHED_ROWS = 40
"""More rows than this are too low for a hatch to be told."""
READABLE = 60
"""More events than this in a row run into each other."""
CROWDED = 4 * READABLE
"""Of more, outlines and hatches would hide the rest."""
UNITS = ((3 * 86400.0, 86400.0, "d"), (3 * 3600.0, 3600.0, "h"), (600.0, 60.0, "min"))
"""(from so many seconds on, seconds of the unit, unit) of the axis of time."""


def readable_s(events: xr.Dataset) -> float:
    """The time until which rows have READABLE events in the mean; the trial's end if that is
    later."""
    count = READABLE * int(events.attrs["devices"])
    starts, end_s = events["start_s"].values, float(events.attrs["end_s"])
    return end_s if len(starts) <= count else float(starts[count])


def chart(
    events: xr.Dataset,
    path: Path | str | None = None,
    start_s: float | None = None,
    until_s: float | None = None,
    devices: Collection[int] | None = None,
) -> Figure:
    """Draws what `timeline.timeline_of` gives, clipped to a `timeline.window`, and saves it to
    `path` (PNG, PDF or SVG). Slots are those of all devices. Raises UserError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if path is not None:
        check_suffix(path)
    part = window(events, start_s, until_s, devices)
    slots, rows = window(events, start_s, until_s), part.attrs["rows"]
    # a row of 200 devices still has its pixels, and three devices do not fill a page
    figure = Figure(figsize=(10.0, 1.1 + min(max(0.3 * len(rows), 1.5), 8.0)))
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained")
    ax = figure.subplots()
    scale, unit = _unit(part.attrs["until_s"] - part.attrs["start_s"])
    crowded = part.sizes["event"] > CROWDED * len(rows)
    handles = [*_bars(ax, part, scale, crowded), *_bands(ax, slots, scale, crowded)]
    ax.set_xlim(part.attrs["start_s"] / scale, part.attrs["until_s"] / scale)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    _device_ticks(ax, rows)
    ax.set_xlabel(f"simulated time [{unit}]")
    ax.set_ylabel("device")
    ax.spines[["top", "right"]].set_visible(False)
    if handles:
        figure.legend(handles=handles, loc="outside right upper", handlelength=1.6)
    figure.suptitle(part.attrs["title"], fontsize=10)
    if path is not None:
        save(figure, Path(path))
    return figure


def _bars(ax: Axes, part: xr.Dataset, scale: float, crowded: bool) -> list:
    """A collection for each activity that occurs; the legend's entries."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    rows = np.array(part.attrs["rows"])
    row = np.searchsorted(rows, part["device"].values)
    start = np.maximum(part["start_s"].values, part.attrs["start_s"]) / scale
    end = np.minimum(part["end_s"].values, part.attrs["until_s"]) / scale
    handles = []
    for name in ACTIVITIES:
        chosen = part["activity"].values == name
        if not chosen.any():
            continue
        look = LOOKS[name]
        x0, x1, y = start[chosen], end[chosen], row[chosen]
        corners = _corners(x0, x1, y - look.height / 2, y + look.height / 2)
        style: dict[str, Any] = {
            "facecolor": look.colour,
            "hatch": look.hatch if len(rows) <= HATCHED_ROWS and not crowded else "",
            "edgecolor": "white" if look.hatch else look.colour,
            "linewidth": 0.0 if crowded else look.edge,
        }
        ax.add_collection(
            PolyCollection(corners, zorder=look.front, label=name, **style), autolim=False
        )
        handles.append(Patch(label=name, **style))
    return handles


def _bands(ax: Axes, slots: xr.Dataset, scale: float, crowded: bool) -> list:
    """The uplink slots, over all rows."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    sending = slots["activity"].values == "transmit"
    start, end = merged(slots["start_s"].values[sending], slots["end_s"].values[sending])
    if not len(start):
        return []
    corners = _corners(start / scale, end / scale, np.zeros_like(start), np.ones_like(start))
    bands = PolyCollection(
        corners,
        transform=ax.get_xaxis_transform(),
        facecolor=SLOT,
        edgecolor=SLOT,
        linewidth=0.0 if crowded else 0.8,
        zorder=0,
        label="uplink slot",
    )
    ax.add_collection(bands, autolim=False)
    return [Patch(label="uplink slot", facecolor=SLOT)]


def _corners(x0: np.ndarray, x1: np.ndarray, low: np.ndarray, high: np.ndarray) -> list:
    """Of n rectangles, each [4, 2]."""
    return list(np.stack([x0, low, x0, high, x1, high, x1, low], 1).reshape(-1, 4, 2))


def _unit(span_s: float) -> tuple[float, str]:
    """Seconds of the unit in which a window reads well, and the unit."""
    for least, seconds, unit in UNITS:
        if span_s >= least:
            return seconds, unit
    return (1.0, "s") if span_s >= 0.1 else (1e-3, "ms")


def _device_ticks(ax: Axes, rows: list[int]) -> None:
    """Every row's device where there is room, else every so many."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 10**9) if len(rows) <= 32 * s)
    places = [place for place, device in enumerate(rows) if step == 1 or device % step == 0]
    ax.set_yticks(places, [str(rows[place]) for place in places])
