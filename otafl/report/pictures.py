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

from otafl.analysis.points import is_numeric
from otafl.analysis.variables import find_first_known, find_main_variable
from otafl.core.errors import UserError
from otafl.losses.metrics import MAIN, METRICS, list_variables
from otafl.plots import heatmap
from otafl.plots.cdf import PERSONAL, cdf_data
from otafl.plots.curves import curve_data
from otafl.plots.drawing import draw
from otafl.plots.kinds import Kind
from otafl.plots.overviews import choose_layout, list_free_axes, overview_data, unzip_axis
from otafl.plots.pareto import pareto_data
from otafl.plots.quantities import select_end
from otafl.plots.style import MANY
from otafl.report.thinning import thin_points
from otafl.results.variables import find_metric, get_better_direction

COSTS = {
    "sim_time_s": "against simulated seconds",
    "device_energy_j": "against joules",
    "tx_energy_j": "against radiated joules",
    "uplink_symbols": "against symbols",
}
MAX_POINTS = 2_000
"""Points of a sweep that figures show; more take minutes to draw."""
LARGEST_SVG = 600_000
"""Characters: figures of more marks are pixels."""
MAX_SOURCES = 1_000_000
"""Characters of all figures in the page; beyond, the largest become pixels."""
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


class FigurePlan(NamedTuple):
    """Request for a figure, with the texts of its title and caption."""

    title: str
    data: xr.Dataset
    caption: str


def draw_figures(ds: xr.Dataset) -> tuple[list[Picture], str]:
    """Draw all figures that the result has data for, and say which points they leave out."""
    if not bool(ds[find_main_variable(ds)].notnull().any()):
        return [], ""
    total = ds["final_round"].size
    ds, said = thin_points(ds, MAX_POINTS)
    points = ds["final_round"].size
    note = f"Figures show {points} of {total} points. {' '.join(said)}" if said else ""
    drawn = [_draw_picture(wanted) for wanted in _iterate_wanted(ds)]
    pictures = [picture for picture, _ in drawn]
    for place in sorted(range(len(drawn)), key=lambda i: -len(pictures[i].source)):
        if sum(len(one.source) for one in pictures) > MAX_SOURCES:
            pictures[place] = pictures[place]._replace(source=_embed_pixels(drawn[place][1]))
    return pictures, note


def _iterate_wanted(ds: xr.Dataset) -> Iterator[FigurePlan]:
    """Yield what the result has data for, in the page's order."""
    y, ds = find_main_variable(ds), unzip_axis(ds)
    data, said = overview_data(ds)
    yield FigurePlan("Overview", data, _join_caption(said, BARS if data.attrs["choices"] else BAND))
    yield from _iterate_curves(ds, y, skip_round=data.attrs["x"] == "round" and not said)
    personal = find_first_known(ds, list_variables("personal_own_test"))
    if personal and personal != y:
        title = f"{_name_metric(personal)} of personal models against rounds"
        yield _plan_curve(ds, personal, "round", title)
    yield from _plan_heatmap(ds, y)
    yield from _plan_distribution(ds)
    yield from _plan_front(ds, y)


def _iterate_curves(ds: xr.Dataset, y: str, skip_round: bool) -> Iterator[FigurePlan]:
    """Yield accuracy against the round, and against what it cost."""
    costs = [name for name in COSTS if name in ds and bool((ds[name] > 0).any())]
    if "device_energy_j" in costs and "tx_energy_j" in costs:
        costs.remove("tx_energy_j")
    for x in costs if skip_round else ["round", *costs]:
        title = _name_metric(y)
        yield _plan_curve(ds, y, x, f"{title} {COSTS.get(x, 'against rounds')}")


def _name_metric(y: str) -> str:
    """Return the title of a variable's figures: its metric, or that it has a course."""
    metric = find_metric(y)
    if metric not in MAIN:
        return "Course"
    return METRICS[metric].noun.capitalize()


def _plan_curve(ds: xr.Dataset, y: str, x: str, title: str) -> FigurePlan:
    """Choose hue and facet, and keep the best of choices that are too many.

    They are the best at the end, in the mean over all else.
    """
    said = ""
    long = next(
        (d for d in list_free_axes(ds) if ds.sizes[d] > MANY and not is_numeric(ds[d])), None
    )
    if long:
        ends = select_end(ds, y, [])
        sign = 1.0 if get_better_direction(y) == "lower" else -1.0
        mean = ends.mean([dim for dim in ends.dims if dim != long]).fillna(sign * np.inf)
        best = np.sort(np.argsort(sign * mean.values, kind="stable")[:MANY])
        said = f"The {MANY} of {ds.sizes[long]} that are best at the end, in the mean over all else"
        ds = ds.isel({long: best})
    layout = choose_layout(ds)
    data = curve_data(layout.ds, y, x, layout.hue, layout.facet)
    return FigurePlan(title, data, _join_caption(said, layout.caption, BAND))


def _plan_heatmap(ds: xr.Dataset, y: str) -> Iterator[FigurePlan]:
    """Yield a heat map, where there are two axes with cells enough."""
    known = [dim for dim in heatmap.list_free_axes(ds, y) if ds.sizes[dim] <= CELLS]
    if len(known) < 2 or ds.sizes[known[0]] * ds.sizes[known[1]] < 4:
        return
    layout = choose_layout(ds, *known[:2])
    # a hue's axis is short, so its values are panels
    panels = layout.hue or layout.facet
    ds = layout.ds.isel({layout.facet: 0}) if layout.hue and layout.facet else layout.ds
    data = heatmap.heatmap_data(ds, y, known[0], known[1], panels)
    yield FigurePlan(
        "Over two axes", data, _join_caption(layout.caption, "Mean over trials at their end.")
    )


def _plan_distribution(ds: xr.Dataset) -> Iterator[FigurePlan]:
    """Yield the distribution over devices of what each of them has."""
    name = find_first_known(ds, PERSONAL)
    if name is None:
        return
    layout = choose_layout(ds)
    data = cdf_data(layout.ds, name, layout.hue, layout.facet)
    said = "Devices of all trials; the band is one standard deviation of the trials' own shares."
    yield FigurePlan("Distribution over devices", data, _join_caption(layout.caption, said))


def _plan_front(ds: xr.Dataset, y: str) -> Iterator[FigurePlan]:
    """Yield the Pareto front of accuracy and cost, where points enough have both."""
    if ds["final_round"].size < 3:
        return
    short = [dim for dim in list_free_axes(ds) if ds.sizes[dim] <= MANY]
    try:
        data = pareto_data(ds, y, hue=short[0] if short else None)
    except UserError:  # no cost was counted, or nothing says which way y is better
        return
    if int(np.isfinite(data["x"]).sum()) >= 3:
        said = "Every point at the end, mean over trials; bars are one standard deviation."
        title = f"{_name_metric(y)} and cost" if find_metric(y) in MAIN else "Cost"
        yield FigurePlan(title, data, said)


def _draw_picture(figure_plan: FigurePlan) -> tuple[Picture, Figure]:
    recipe = Kind(figure_plan.data.attrs["kind"]).recipe
    figure = draw(figure_plan.data)
    width, height = (int(PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
    alt = recipe.describe_fn(figure_plan.data)
    title, caption = figure_plan.title, figure_plan.caption
    return Picture(title, caption, alt, _embed(figure), width, height), figure


def _embed(figure: Figure) -> str:
    """Return the figure as a data URI: SVG with letters as shapes, or PNG where that is large."""
    buffer = io.BytesIO()
    # the same result gives the same page
    with matplotlib.rc_context({"svg.hashsalt": "otafl"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    if buffer.tell() > LARGEST_SVG:
        return _embed_pixels(figure)
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _embed_pixels(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _join_caption(*parts: str) -> str:
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts if part)
