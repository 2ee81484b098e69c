"""Style and layout of figures: panels whose texts neither overlap nor leave the figure.

Markers and line styles differ as well as colours, so that a figure can be read in grey.
Matplotlib's constrained layout makes room around the panels of a figure. Texts are broken into
lines here by their number of letters, and `finish` makes the figure as large as its panels need.

References
----------
Okabe, Ito 2008, "Color Universal Design".
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from otafl.analysis.points import format_label
from otafl.core.errors import UserError
from otafl.results.coordinates import format_coordinate, format_value

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
LEGEND_WIDTH = 32
"""Letters in a line of a legend or under a tick: choices with their settings are long."""
MARKED = 10
"""Markers of a curve, about."""
MANY = 7
"""More curves than this in one panel are hard to distinguish; `draw_overview` draws no more."""
LARGEST = 1e100
"""Larger values, of models that diverge, are not drawn, since a logarithmic axis fails there."""
DECADES = 100.0
"""Positive values that span more than this factor are drawn on a logarithmic axis."""


def get_style(i: int, points: int = 1) -> dict[str, Any]:
    """Return colour, marker and line of curve i of so many points.

    Colours come round after seven; the marker and the line are then other ones. A curve has about
    `MARKED` markers, shifted so that those of two curves do not coincide.
    """
    turn, every = i // len(COLOURS), max(1, points // MARKED)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[(i + turn) % len(MARKERS)],
        "markersize": 4.5,
        "markevery": ((i * every // 3) % every, every),
        "linestyle": LINES[(i + 2 * turn) % len(LINES)],
        "linewidth": 1.4,
    }


def split_parts(data: xr.Dataset, *flags: str) -> list[tuple[str, xr.Dataset]]:
    """Split a view by the dims of these flags, "facet" or "hue", as far as it has them.

    Returns the values of these dims in words, and what is drawn at them.
    """
    dims = [data.attrs[flag] for flag in flags if data.attrs[flag]]
    found = []
    for place in np.ndindex(*(data.sizes[dim] for dim in dims)):
        part = data.isel(dict(zip(dims, place, strict=True)))
        # matplotlib leaves texts that begin with an underscore out of its legends
        texts = [re.sub("^(__main__:|_+)", "", format_value(part[dim].values)) for dim in dims]
        found.append((", ".join(texts), part))
    return found


def wrap_text(text: str, width: int = LEGEND_WIDTH) -> str:
    """Wrap a text into lines of `width` letters at most.

    Units stay with their word. Words may be broken before a bracket, and where they are longer than
    a line.
    """
    if "\n" in text:
        return "\n".join(wrap_text(part, width) for part in text.split("\n"))
    if len(text) <= width:
        return text
    text = re.sub(r"(?<=\w)\(", " (", text.replace(" [", "\u00a0["))
    return textwrap.fill(text, width, break_on_hyphens=False).replace("\u00a0", " ")


def spans_decades(values: np.ndarray) -> bool:
    """Return whether all finite values are positive and span more than two decades."""
    finite = values[np.isfinite(values)]
    return bool(finite.size and finite.min() > 0 and finite.max() > DECADES * finite.min())


PANEL = (2.8, 2.1)
"""Inches of one of several panels, without what is written around it."""
SINGLE_PANEL = (3.9, 2.7)
"""Inches of a panel that is the only one."""
WIDEST = 24.0
"""Inches: panels are not made wider to make room for names under ticks."""
SLIMMEST = 1.5
"""Inches of a figure of given width for each panel; where there are fewer, panels go below."""
LEAST_PANEL = 0.7
"""Inches: narrower panels are refused."""
AROUND = 2.5
"""Inches around the panels before their need is known; constrained layout fails with too few."""
MAX_TICKS = 8
"""Values of an axis that each have a tick."""


def make_figure(size: tuple[float, float]) -> Figure:
    """Return a figure of this size in inches, without anything in it."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def make_panels(
    data: xr.Dataset, size: tuple[float, float] | None = None
) -> tuple[Figure, list[tuple[Axes, xr.Dataset]]]:
    """Make a figure with a titled panel for each value of the facet; one panel without a facet.

    size: inches of a panel. Returns the panels with what each shows, which has the attribute
    panel_width. All have the same limits.
    """
    facet, shows = data.attrs["facet"], [part for _, part in split_parts(data, "facet")]
    columns = count_columns(len(shows), get_width(data))
    rows = math.ceil(len(shows) / columns)
    width, height = get_panel_size(data, size)
    letters = count_letters(width)
    x_label = wrap_text(data.attrs["x_label"], max(16, letters))
    y_label = wrap_text(data.attrs["y_label"], max(16, count_letters(height)))
    total = get_width(data) or columns * width + AROUND
    figure = make_figure((total, rows * (height + AROUND) + AROUND))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for i, ax in enumerate(grid):
        ax.set_visible(i < len(shows))
        # shared axes hide the labels of panels that have nothing below them
        bottom, left = i + columns >= len(shows), i % columns == 0
        ax.tick_params(labelbottom=bottom, labelleft=left)
        ax.xaxis.offsetText.set_visible(bottom)
        ax.yaxis.offsetText.set_visible(left)
        ax.set(xlabel=x_label if bottom else "", ylabel=y_label if left else "")
        if facet and i < len(shows):
            title = format_coordinate(data, facet, data[facet].values[i])
            ax.set_title(wrap_text(title, int(0.85 * letters)), fontsize="medium")
    shows = [part.assign_attrs(panel_width=width) for part in shows]
    return figure, list(zip(grid, shows, strict=False))


def get_width(data: xr.Dataset) -> float:
    """Return the width in inches that the figure must have; 0 where it has what it needs."""
    return float(data.attrs.get("width", 0.0))


def count_columns(count: int, width: float = 0.0) -> int:
    """Return how many panels are beside each other, in a figure of this width in inches."""
    usual = 2 if count == 4 else min(3 if count <= 12 else 5, count)
    return min(usual, max(1, int(width / SLIMMEST))) if width else usual


def get_panel_size(
    data: xr.Dataset, size: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Return the inches of a panel; about those in a figure of given width, whose shape is kept."""
    count = data.sizes[data.attrs["facet"]] if data.attrs["facet"] else 1
    width, height = size or (PANEL if count > 1 else SINGLE_PANEL)
    total = get_width(data)
    if not total:
        return width, height
    own = 0.75 * total / count_columns(count, total)
    return own, own * height / width


def count_letters(inches: float) -> int:
    """Return about how many letters fit into a line."""
    return int(inches * 130.0 / matplotlib.rcParams["font.size"])


def style_axes(ax: Axes, **logarithmic: bool) -> None:
    """Draw a light grid and no box; make x or y logarithmic."""
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    for axis, wanted in logarithmic.items():
        if wanted:
            getattr(ax, f"set_{axis}scale")("log", nonpositive="clip")


def set_numeric_ticks(ax: Axes, values: np.ndarray, inches: float) -> None:
    """Put a tick at each value where there are few; a log axis where they grow by a factor."""
    values = values[np.isfinite(values)]
    if len(values) > 2 and values[0] > 0:
        ratios = values[1:] / values[:-1]
        if ratios.min() > 1.5 and ratios.max() < 4 * ratios.min() and values[-1] > 30 * values[0]:
            ax.set_xscale("log")
    texts = [format_value(value) for value in values]
    place = np.log(values) if ax.get_xscale() == "log" else values
    gaps = np.diff(place) / (np.ptp(place) or 1.0) * inches
    if len(values) <= MAX_TICKS and gaps.min(initial=inches) > _measure(texts):
        ax.xaxis.set_major_locator(FixedLocator(values.tolist()))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
        ax.xaxis.set_minor_locator(NullLocator())


def draw_panels(
    data: xr.Dataset,
    title: str,
    panel: Callable[[Axes, xr.Dataset], None],
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draw a figure whose panels have a legend of what has a colour, where anything has."""
    figure, axes = make_panels(data, size)
    for ax, part in axes:
        panel(ax, part)
    hue = data.attrs["hue"]
    if hue:
        handles, texts = figure.axes[0].get_legend_handles_labels()
        add_legend(figure, data, handles, texts, format_label(data[hue], hue))
    finish(figure, data, title, size)
    return figure


def add_legend(
    figure: Figure, data: xr.Dataset, handles: list[Any], texts: list[str], title: str
) -> None:
    """Add a legend beside the panels; below them, where the figure's width is given."""
    letters = count_letters(get_width(data))
    lines = [
        wrap_text(text, min(32, letters - 8)) if letters else wrap_text(text) for text in texts
    ]
    place: dict[str, Any] = {"loc": "outside right upper", "alignment": "left"}
    if letters:
        longest = max(len(line) for text in lines for line in text.split("\n"))
        columns = min(len(lines), max(1, letters // (longest + 8)))
        place = {"loc": "outside lower center", "frameon": False, "columnspacing": 1.0}
    else:
        columns = math.ceil(sum(text.count("\n") + 1 for text in lines) / 45)
    figure.legend(handles, lines, title=wrap_text(title), ncols=columns, **place)


def fit_names(names: list[str], width: float) -> tuple[float, int]:
    """Return the width in inches that a panel needs for names under its ticks, and their angle.

    Names that do not fit beside each other are turned, so that their lines do.
    """
    texts = [wrap_text(name) for name in names]
    if len(names) * _measure(texts) <= width:
        return width, 0
    lines = max(text.count("\n") + 1 for text in texts)
    height = 1.3 * matplotlib.rcParams["font.size"] / 72 * lines
    return min(max(width, len(names) * height), WIDEST), 90


def name_ticks(axis: Axis, names: list[str], angle: int = 0, most: int = sys.maxsize) -> None:
    """Write names, folded, at the places 0, 1, ... of choices; of more than `most`, every nth."""
    step = math.ceil(len(names) / most)
    texts = [wrap_text(name) for name in names[::step]]
    style: dict[str, Any] = {"rotation": angle, "ha": "right", "va": "center"}
    style["rotation_mode"] = "anchor"
    axis.set_ticks(range(0, len(names), step), texts, **(style if angle else {}))
    axis.set_ticks([], minor=True)


def finish(
    figure: Figure, data: xr.Dataset, title: str = "", size: tuple[float, float] | None = None
) -> None:
    """Write the title and the notes, and make the figure as large as its panels need.

    A figure whose width is given has nothing above its panels, because a paper has a caption.

    Raises
    ------
    UserError : for a width that leaves no room for panels.
    """
    axes = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]
    total = get_width(data)
    columns = count_columns(len(axes), total)
    numbers = np.array((columns, math.ceil(len(axes) / columns)))
    wanted = np.array(get_panel_size(data, size))
    ratio = wanted[1] / wanted[0]
    lines = [*title.split("\n"), data.attrs["note"], data.attrs.get("band", "")]
    folded = [
        textwrap.fill(line, count_letters(columns * wanted[0] + 0.4)) for line in lines if line
    ]
    if folded and not total:
        figure.suptitle("\n".join(folded), fontsize="medium", x=0.02, ha="left")
    for _ in range(2):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            figure.draw_without_rendering()
        have = np.min([ax.get_window_extent().size for ax in axes], axis=0) / figure.dpi
        if total and (told or have[0] < LEAST_PANEL):
            raise UserError(
                f"width {total:g}: leaves no room for panels beside their labels; give more inches"
            )
        if total:
            wanted = np.array((have[0], ratio * have[0]))
        legends = [one.get_window_extent().height / figure.dpi for one in figure.legends]
        width, height = figure.get_size_inches() + numbers * (wanted - have)
        figure.set_size_inches(width, max([height, *(one + 0.3 for one in legends)]))
    figure.draw_without_rendering()


def _measure(texts: list[str]) -> float:
    """Return about how many inches the longest line of texts has, with a space after it."""
    letters = max((len(line) for text in texts for line in text.split("\n")), default=0)
    return (letters + 2) / count_letters(1.0)
