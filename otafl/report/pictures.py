"""Draw the figures of a report that a result has the data for, and say in words what they show."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

from otafl.analysis.points import AXES, find_first_known, find_main_variable, is_numeric
from otafl.core.errors import UserError
from otafl.losses.metrics import MAIN, METRICS, list_variables
from otafl.plots.cdf import PERSONAL, cdf_data
from otafl.plots.curves import curve_data
from otafl.plots.drawing import draw, shorten_labels
from otafl.plots.heatmap import heatmap_data
from otafl.plots.heatmap import list_free_axes as list_heatmap_axes
from otafl.plots.layout import MANY
from otafl.plots.overviews import choose_layout, list_free_axes, overview_data, unzip_axis
from otafl.plots.pareto import pareto_data
from otafl.results.coordinates import get_long_name
from otafl.results.variables import find_metric

COSTS = {
    "sim_time_s": "against simulated seconds",
    "device_energy_j": "against joules",
    "tx_energy_j": "against radiated joules",
    "uplink_symbols": "against symbols",
}
MAX_POINTS = 2_000
"""Points of a sweep that figures show; more take minutes to draw."""
PIXELS_PER_INCH = 80
"""Pixels of the page; the figure has twice as many."""
CELLS = 60
"""Rows or columns that a heat map has at most."""


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


Plan = tuple[str, xr.Dataset, str]
"""Title of a figure, the drawn view, and the part of the result that it shows."""


def draw_figures(
    ds: xr.Dataset, announce: Callable[[str], None] = lambda step: None
) -> list[Picture]:
    """Draw all figures that the result has data for; none of more than `MAX_POINTS` points.

    announce : is called with each figure's title before it is drawn.
    """
    pictures: list[Picture] = []
    if not bool(ds[find_main_variable(ds)].notnull().any()) or ds["final_round"].size > MAX_POINTS:
        return pictures
    for title, data, caption in _iterate_plans(ds):
        announce(f"figure: {title}")
        # the page has the notes above, and short labels do not wrap
        figure = draw(shorten_labels(data).assign_attrs(note=""))
        width, height = (int(PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=2 * PIXELS_PER_INCH)
        source = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        labels = (data.attrs.get(f"{axis}_label") for axis in reversed(AXES))
        alt = f"{title}: {' against '.join(filter(None, labels))}"
        pictures.append(Picture(title, caption, alt, source, width, height))
    return pictures


def _iterate_plans(ds: xr.Dataset) -> Iterator[Plan]:
    """Yield what the result has data for, in the page's order."""
    y, ds = find_main_variable(ds), unzip_axis(ds)
    data, said = overview_data(ds)
    yield "Overview", data, said
    costs = [name for name in COSTS if name in ds and bool((ds[name] > 0).any())]
    if "device_energy_j" in costs and "tx_energy_j" in costs:
        costs.remove("tx_energy_j")
    for x in costs if data.attrs["x"] == "round" and not said else ["round", *costs]:
        yield _plan_curve(ds, y, x, f"{_name_metric(y)} {COSTS.get(x, 'against rounds')}")
    personal = find_first_known(ds, list_variables("personal_own_test"))
    if personal and personal != y:
        title = f"{_name_metric(personal)} of personal models against rounds"
        yield _plan_curve(ds, personal, "round", title)
    known = [dim for dim in list_heatmap_axes(ds, y) if ds.sizes[dim] <= CELLS][:2]
    if len(known) == 2 and ds.sizes[known[0]] * ds.sizes[known[1]] >= 4:
        layout = choose_layout(ds, *known)
        # a hue's axis is short, so its values are panels
        panels = layout.hue or layout.facet
        cut = layout.ds.isel({layout.facet: 0}) if layout.hue and layout.facet else layout.ds
        yield "Over two axes", heatmap_data(cut, y, known[0], known[1], panels), layout.caption
    if name := find_first_known(ds, PERSONAL):
        layout = choose_layout(ds)
        data = cdf_data(layout.ds, name, layout.hue, layout.facet)
        yield "Distribution over devices", data, layout.caption
    yield from _plan_front(ds, y)


def _name_metric(y: str) -> str:
    """Return the title of a variable's figures: its metric, or that it has a course."""
    metric = find_metric(y)
    return METRICS[metric].noun.capitalize() if metric in MAIN else "Course"


def _plan_curve(ds: xr.Dataset, y: str, x: str, title: str) -> Plan:
    """Choose hue and facet; of more choices than can be distinguished the first are drawn."""
    said = []
    for dim in list_free_axes(ds):
        if ds.sizes[dim] > MANY and not is_numeric(ds[dim]):
            said.append(f"The first {MANY} of {ds.sizes[dim]} values of {get_long_name(ds, dim)}")
            ds = ds.isel({dim: slice(MANY)})
    layout = choose_layout(ds)
    data = curve_data(layout.ds, y, x, layout.hue, layout.facet)
    return title, data, "; ".join(filter(None, (*said, layout.caption)))


def _plan_front(ds: xr.Dataset, y: str) -> Iterator[Plan]:
    """Yield the Pareto front of accuracy and cost, where points enough have both."""
    short = [dim for dim in list_free_axes(ds) if ds.sizes[dim] <= MANY]
    try:
        data = pareto_data(ds, y, hue=short[0] if short else None)
    except UserError:  # no cost was counted, or nothing says which way y is better
        return
    if int(np.isfinite(data["x"]).sum()) >= 3:
        title = f"{_name_metric(y)} and cost" if find_metric(y) in MAIN else "Cost"
        yield title, data, "Every point at the end"
