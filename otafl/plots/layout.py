"""Lay out panels, ticks, legends and titles so that nothing overlaps and nothing is cut.

Matplotlib's constrained layout makes room for what is written around the panels of a figure whose
size is given. What it leaves open is measured here on what is drawn: how large the figure must be
for its panels, where texts are broken, ticks that touch, and powers of ten beside an axis.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from otafl.core.errors import UserError
from otafl.plots.parts import split_parts
from otafl.plots.style import format_coordinate, format_label, wrap_text
from otafl.results.coordinates import format_value

PANEL = (2.8, 2.1)
"""Inches of one of several panels, without what is written around it."""
SINGLE_PANEL = (3.9, 2.7)
"""Inches of a panel that is the only one."""
WIDEST = 24.0
"""Inches: figures are not made wider to make room for names under ticks."""
ROOM = (9.0, 5.0)
"""Inches around the panels before it is known how many are needed; constrained layout fails where
they are too few."""
JOURNAL_FONT = 8.0
"""Points of all letters of a figure whose width is given."""
SLIMMEST = 1.5
"""Inches of a figure of given width for each panel; where there are fewer, panels go below."""
LEAST_PANEL = 0.7
"""Inches: narrower panels are refused."""
GAP = 3.0
"""Pixels between texts at the least."""
SETTLED = 1e-9
"""Inches that a figure's size still changes by where further changes would be rounding."""
LETTERS_PER_INCH = 13.0
"""Approximate number of letters per inch of labels and titles."""


def make_figure(size: tuple[float, float]) -> Figure:
    """Return a figure of this size in inches, without anything in it."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def make_panels(
    data: xr.Dataset, size: tuple[float, float] | None = None
) -> tuple[Figure, list[tuple[Axes, xr.Dataset]]]:
    """Make a figure with a titled panel for each value of the facet; one panel without a facet.

    size: inches of a panel. Returns the panels with what each shows. All have the same limits.
    """
    facet, shows = data.attrs["facet"], [part for _, part in split_parts(data, "facet")]
    columns = count_columns(len(shows), get_width(data))
    rows = math.ceil(len(shows) / columns)
    width, height = size or get_panel_size(len(shows))
    if get_width(data):
        width = 0.75 * get_width(data) / columns
    letters = int(_get_letters_per_inch(data) * width)
    below = wrap_text(data.attrs["x_label"], max(24, letters))
    beside = wrap_text(data.attrs["y_label"], max(20, int(_get_letters_per_inch(data) * height)))
    figure = make_figure((ROOM[0] + width * columns, ROOM[1] + height * rows))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for i, ax in enumerate(grid):
        ax.set_visible(i < len(shows))
        # shared axes hide the labels of panels that have nothing below them
        bottom, left = i + columns >= len(shows), i % columns == 0
        ax.tick_params(labelbottom=bottom, labelleft=left)
        ax.set(xlabel=below if bottom else "", ylabel=beside if left else "")
        for axis in (ax.xaxis, ax.yaxis):
            axis.get_major_formatter().set_useOffset(False)
        if facet and i < len(shows):
            title = format_coordinate(data, facet, data[facet].values[i])
            ax.set_title(wrap_text(title, letters), fontsize="medium")
    return figure, list(zip(grid, shows, strict=False))


def get_width(data: xr.Dataset) -> float:
    """Return the width in inches that the figure must have; 0 where it has what it needs."""
    return float(data.attrs.get("width", 0.0))


def count_columns(count: int, width: float = 0.0) -> int:
    """Return how many panels are beside each other, in a figure of this width in inches."""
    usual = 2 if count == 4 else min(3 if count <= 12 else 5, count)
    return min(usual, max(1, int(width / SLIMMEST))) if width else usual


def get_panel_size(count: int) -> tuple[float, float]:
    """Return the inches of each of `count` panels."""
    return PANEL if count > 1 else SINGLE_PANEL


def style_axes(ax: Axes, **logarithmic: bool) -> None:
    """Draw a light grid and no box; make x or y logarithmic."""
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    for axis, wanted in logarithmic.items():
        if wanted:
            getattr(ax, f"set_{axis}scale")("log", nonpositive="clip")


def set_numeric_ticks(ax: Axes, values: np.ndarray) -> None:
    """Put a tick at each value where there are few; a log axis where they grow by a factor."""
    values = values[np.isfinite(values)]
    if len(values) > 2 and values[0] > 0:
        ratios = values[1:] / values[:-1]
        if ratios.min() > 1.5 and ratios.max() < 4 * ratios.min() and values[-1] > 30 * values[0]:
            ax.set_xscale("log")
    if len(values) <= 8:
        ax.set_xticks(values, [format_value(value) for value in values])
        ax.set_xticks([], minor=True)


def draw_panels(data: xr.Dataset, title: str, panel: Callable[[Axes, xr.Dataset], None]) -> Figure:
    """Draw a figure whose panels have a legend of what has a colour, where anything has."""
    figure, axes = make_panels(data)
    for ax, part in axes:
        panel(ax, part)
    hue = data.attrs["hue"]
    if hue:
        handles, texts = figure.axes[0].get_legend_handles_labels()
        add_legend(figure, handles, texts, format_label(data[hue], hue), get_width(data))
    arrange(figure, data, title, names=bool(data.attrs.get("choices")))
    return figure


def add_legend(
    figure: Figure, handles: list[Any], texts: list[str], title: str, width: float = 0.0
) -> None:
    """Add a legend beside the panels; below them, where the figure's width is given."""
    lines = [wrap_text(text) for text in texts]
    for columns in range(len(lines) if width else 0, 0, -1):
        below = figure.legend(
            handles,
            lines,
            title=wrap_text(title),
            loc="outside lower center",
            ncols=columns,
            columnspacing=1.0,
            handlelength=1.8,
            frameon=False,
        )
        if columns == 1 or below.get_window_extent().width <= width * figure.dpi:
            return
        figure.legends.remove(below)
    columns = math.ceil(sum(text.count("\n") + 1 for text in lines) / 45)
    place: dict[str, Any] = {"loc": "outside right upper", "alignment": "left", "ncols": columns}
    figure.legend(handles, lines, title=wrap_text(title), **place)


def name_ticks(axis: Axis, names: list[str], most: int = sys.maxsize) -> None:
    """Write names, folded, at the places 0, 1, ... of choices; of more than `most`, every nth."""
    step = math.ceil(len(names) / most)
    axis.set_ticks(range(0, len(names), step), [wrap_text(name) for name in names[::step]])
    axis.set_ticks([], minor=True)


def arrange(
    figure: Figure,
    data: xr.Dataset,
    title: str = "",
    size: tuple[float, float] | None = None,
    names: bool = False,
) -> None:
    """Write the title and the note in lines that fit, mend ticks that overlap, and make room.

    Parameters
    ----------
    size : inches that each panel gets, without all that is written around it.
    names : there are names under the ticks, which are turned where they overlap; numbers are
        thinned out.
    """
    axes = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]
    width, height = size or get_panel_size(len(axes))
    lines = [*title.split("\n"), data.attrs["note"], data.attrs.get("band", "")]
    total = get_width(data)
    if total:
        width, height = _find_panel_size(figure, axes, lines, total, height / width)
    _fit(figure, axes, lines, (width, height), total)
    touching = [
        ax for ax in axes if len(_select_separate_ticks(ax.xaxis)) < len(list_tick_texts(ax.xaxis))
    ]
    if touching and names:
        turned = _rotate_tick_labels(axes, width)
        _fit(figure, axes, lines, (width if total else turned, height), total)
    for ax in () if names else touching:
        _thin(ax.xaxis)
    for ax in figure.axes:
        _scale_labels(ax.xaxis)
        _scale_labels(ax.yaxis)
    if total:
        figure.set_size_inches(total, figure.get_figheight())
    _lay_out(figure)
    figure.set_layout_engine("none")  # all is in its place: saving need not compute it again


def _get_letters_per_inch(data: xr.Dataset) -> float:
    return LETTERS_PER_INCH * (10.0 / JOURNAL_FONT if get_width(data) else 1.0)


def _lay_out(figure: Figure) -> None:
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)


def _find_panel_size(
    figure: Figure, axes: list[Axes], lines: list[str], total: float, ratio: float
) -> tuple[float, float]:
    """Return the size of panels with which the figure is `total` inches wide."""
    columns = count_columns(len(axes), total)
    width = 0.75 * total / columns
    for _ in range(4):
        _fit(figure, axes, lines, (width, ratio * width), total)
        width += (total - figure.get_figwidth()) / columns
        if width < LEAST_PANEL:
            raise UserError(
                f"width {total:g}: leaves no room for panels beside their labels; give more inches"
            )
    return width, ratio * width


def _fit(
    figure: Figure,
    axes: list[Axes],
    lines: list[str],
    size: tuple[float, float],
    total: float = 0.0,
) -> None:
    """Make the figure as large as its panels, at this size, and all that is around them need.

    It is at least as high as its legend. Lines are written over the panels. total: inches of a
    figure whose width is given.
    """
    columns = count_columns(len(axes), total)
    numbers = (columns, math.ceil(len(axes) / columns))
    tall = max((made.get_window_extent().height for made in figure.legends), default=0.0)
    for _ in range(4):
        _write_title(figure, lines, total)
        _lay_out(figure)
        have = np.min([ax.get_window_extent().size for ax in axes], axis=0) / figure.dpi
        before = figure.get_size_inches()
        width, height = before + numbers * (size - have)
        height = max(height, tall / figure.dpi + 0.3)
        figure.set_size_inches(width, height)
        if np.abs((width, height) - before).max() < SETTLED:
            return


def _write_title(figure: Figure, lines: list[str], total: float) -> None:
    """Write lines over the panels, not over the legend, which is below where `total` is given."""
    beside = sum(made.get_window_extent().width for made in figure.legends) / figure.dpi
    width, per_inch = figure.get_figwidth(), LETTERS_PER_INCH
    if total:
        beside, width, per_inch = 0.0, total, LETTERS_PER_INCH * 10.0 / JOURNAL_FONT
    letters = int(per_inch * (width - beside - 0.2))
    folded = [textwrap.fill(line, letters) for line in lines if line]
    if folded:
        figure.suptitle("\n".join(folded), fontsize="medium", x=0.5 * (width - beside) / width)


def _scale_labels(axis: Axis) -> None:
    """Move powers of ten that the numbers of an axis leave out to its units: [$10^7$ J]."""
    formatter = axis.get_major_formatter()
    factor = formatter.get_offset().replace("\N{MINUS SIGN}", "-")
    if not isinstance(formatter, ScalarFormatter) or not factor:
        return
    axis.get_offset_text().set_visible(False)
    text, power = axis.get_label_text(), f"$10^{{{round(math.log10(float(factor)))}}}$"
    if text:
        scaled = re.sub(r"\[(?!\$)(.*?)\]", lambda found: f"[{power} {found[1]}]", text, count=1)
        if scaled == text:
            said, line, better = text.partition("\n(")
            scaled = f"{said} [{power}]{line}{better}"
        axis.set_label_text(scaled)


def list_tick_texts(axis: Axis) -> list[Any]:
    """Return the texts of an axis' major ticks that are seen."""
    low, high = sorted(axis.get_view_interval())
    pad = 1e-9 * abs(high - low)
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if tick.label1.get_visible()
        and tick.label1.get_text()
        and low - pad <= tick.get_loc() <= high + pad
    ]


def _select_separate_ticks(axis: Axis) -> list[Any]:
    """Return the texts of ticks along x that do not come closer than `GAP` to the one before."""
    kept, end = [], -math.inf
    boxes = [(text.get_window_extent(), text) for text in list_tick_texts(axis)]
    for box, text in sorted(boxes, key=lambda pair: pair[0].x0):
        if box.x0 >= end + GAP:
            kept.append(text)
            end = box.x1
    return kept


def _rotate_tick_labels(axes: list[Axes], width: float) -> float:
    """Turn names under ticks by an angle that their number allows.

    Returns the width in inches that the panels need for it.
    """
    texts = [text for ax in axes for text in list_tick_texts(ax.xaxis)]
    height = max(text.get_text().count("\n") + 1 for text in texts) * 1.3
    height *= texts[0].get_fontsize() / 72
    number = max(len(list_tick_texts(ax.xaxis)) for ax in axes)
    room = WIDEST / count_columns(len(axes))
    needed = {angle: number * height / math.sin(math.radians(angle)) for angle in (30, 90)}
    angle = 30 if needed[30] <= max(width, 0.6 * room) else 90
    for text in texts:
        text.set(rotation=angle, ha="right", rotation_mode="anchor")
        text.set(va="center" if angle == 90 else "top")
    return max(width, min(needed[angle], room))


def _thin(axis: Axis) -> None:
    """Leave out ticks along x whose numbers would touch the one before."""
    kept = _select_separate_ticks(axis)
    axis.set_ticks([text.get_position()[0] for text in kept], [text.get_text() for text in kept])
    axis.set_ticks([], minor=True)
