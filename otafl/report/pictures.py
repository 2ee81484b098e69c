"""Draw the figures of a report that a result has the data for, and say in words what they show."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import NamedTuple

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from otafl.analysis.points import numeric
from otafl.core.errors import UserError
from otafl.plots import heatmap
from otafl.plots.cdf import PERSONAL, cdf_data
from otafl.plots.curves import curve_data
from otafl.plots.kinds import Kind
from otafl.plots.overviews import arranged, free_axes, overview_data, unzipped
from otafl.plots.pareto import pareto_data
from otafl.plots.quantities import at_the_end, first_known, main_variable
from otafl.plots.style import MANY

COSTS = {
    "sim_time_s": "against simulated seconds",
    "device_energy_j": "against joules",
    "tx_energy_j": "against radiated joules",
    "uplink_symbols": "against symbols",
}
LARGEST_SVG = 600_000
"""Characters: figures of more marks are pixels."""
PIXELS_PER_INCH = 80
CELLS = 60
"""Rows or columns that a heat map has at most."""
BAND = "Mean over trials; the band is one standard deviation."
BARS = "Mean over trials; bars are one standard deviation."


class Picture(NamedTuple):
    """Figure in the page: its source as a data URI, and its size in pixels of the page.

    `alt` says in words what it shows.
    """

    title: str
    caption: str
    alt: str
    source: str
    width: int
    height: int


class Wanted(NamedTuple):
    """Request for a figure, with the texts of its title and caption."""

    title: str
    data: xr.Dataset
    caption: str


def figures(ds: xr.Dataset) -> list[Picture]:
    """Draw all figures that the result has data for."""
    if not bool(ds[main_variable(ds)].notnull().any()):
        return []
    return [_picture(wanted) for wanted in _wanted(ds)]


def _wanted(ds: xr.Dataset) -> Iterator[Wanted]:
    """Yield what the result has data for, in the page's order."""
    y, ds = main_variable(ds), unzipped(ds)
    data, said = overview_data(ds)
    yield Wanted("Overview", data, _caption(said, BARS if data.attrs["choices"] else BAND))
    yield from _curves(ds, y, skip_round=data.attrs["x"] == "round" and not said)
    personal = first_known(ds, ["personal_own_test_accuracy"])
    if personal and personal != y:
        yield _course(ds, personal, "round", "Accuracy of personal models against rounds")
    yield from _heatmap(ds, y)
    yield from _distribution(ds)
    yield from _front(ds, y)


def _curves(ds: xr.Dataset, y: str, skip_round: bool) -> Iterator[Wanted]:
    """Yield accuracy against the round, and against what it cost."""
    costs = [name for name in COSTS if name in ds and bool((ds[name] > 0).any())]
    if "device_energy_j" in costs and "tx_energy_j" in costs:
        costs.remove("tx_energy_j")
    for x in costs if skip_round else ["round", *costs]:
        title = "Accuracy" if y.endswith("accuracy") else "Course"
        yield _course(ds, y, x, f"{title} {COSTS.get(x, 'against rounds')}")


def _course(ds: xr.Dataset, y: str, x: str, title: str) -> Wanted:
    """Choose hue and facet, and keep the best of choices that are too many.

    They are the best at the end, in the mean over all else.
    """
    said = ""
    long = next((d for d in free_axes(ds) if ds.sizes[d] > MANY and not numeric(ds[d])), None)
    if long:
        ends = at_the_end(ds, y, [])
        mean = ends.mean([dim for dim in ends.dims if dim != long]).fillna(-np.inf)
        best = np.sort(np.argsort(-mean.values, kind="stable")[:MANY])
        said = f"The {MANY} of {ds.sizes[long]} that are best at the end, in the mean over all else"
        ds = ds.isel({long: best})
    layout = arranged(ds)
    data = curve_data(layout.ds, y, x, layout.hue, layout.facet)
    return Wanted(title, data, _caption(said, layout.said, BAND))


def _heatmap(ds: xr.Dataset, y: str) -> Iterator[Wanted]:
    """Yield a heat map, where there are two axes with cells enough."""
    known = [dim for dim in heatmap.free_axes(ds, y) if ds.sizes[dim] <= CELLS]
    if len(known) < 2 or ds.sizes[known[0]] * ds.sizes[known[1]] < 4:
        return
    layout = arranged(ds, *known[:2])
    # a hue's axis is short, so its values are panels
    panels = layout.hue or layout.facet
    ds = layout.ds.isel({layout.facet: 0}) if layout.hue and layout.facet else layout.ds
    data = heatmap.heatmap_data(ds, y, known[0], known[1], panels)
    yield Wanted("Over two axes", data, _caption(layout.said, "Mean over trials at their end."))


def _distribution(ds: xr.Dataset) -> Iterator[Wanted]:
    """Yield the distribution over devices of what each of them has."""
    name = first_known(ds, PERSONAL)
    if name is None:
        return
    layout = arranged(ds)
    data = cdf_data(layout.ds, name, layout.hue, layout.facet)
    said = "Devices of all trials; the band is one standard deviation of the trials' own shares."
    yield Wanted("Distribution over devices", data, _caption(layout.said, said))


def _front(ds: xr.Dataset, y: str) -> Iterator[Wanted]:
    """Yield the Pareto front of accuracy and cost, where points enough have both."""
    if ds["final_round"].size < 3:
        return
    short = [dim for dim in free_axes(ds) if ds.sizes[dim] <= MANY]
    try:
        data = pareto_data(ds, y, hue=short[0] if short else None)
    except UserError:  # no cost was counted, or nothing says which way y is better
        return
    if int(np.isfinite(data["x"]).sum()) >= 3:
        said = "Every point at the end, mean over trials; bars are one standard deviation."
        yield Wanted("Accuracy and cost" if y.endswith("accuracy") else "Cost", data, said)


def _picture(wanted: Wanted) -> Picture:
    recipe = Kind(wanted.data.attrs["kind"]).recipe
    figure = recipe.draw(wanted.data, "")
    width, height = (int(PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
    alt = recipe.described(wanted.data)
    return Picture(wanted.title, wanted.caption, alt, _embedded(figure), width, height)


def _embedded(figure: Figure) -> str:
    """Return the figure as a data URI: SVG with letters as shapes, or PNG where that is large."""
    buffer = io.BytesIO()
    # the same result gives the same page
    with matplotlib.rc_context({"svg.hashsalt": "otafl"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    kind = "svg+xml"
    if buffer.tell() > LARGEST_SVG:
        buffer, kind = io.BytesIO(), "png"
        figure.savefig(buffer, format="png", dpi=160)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _caption(*parts: str) -> str:
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts if part)
