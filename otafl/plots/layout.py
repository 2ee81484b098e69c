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
GAP = 3.0
"""Pixels between texts at the least."""
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
    columns = count_columns(len(shows))
    rows = math.ceil(len(shows) / columns)
    width, height = size or get_panel_size(len(shows))
    letters = int(LETTERS_PER_INCH * width)
    below = wrap_text(data.attrs["x_label"], max(24, letters))
    beside = wrap_text(data.attrs["y_label"], max(20, int(LETTERS_PER_INCH * height)))
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
            ax.set_title(wrap_text(title, letters), fontsize=10)
    return figure, list(zip(grid, shows, strict=False))


def count_columns(count: int) -> int:
    """Return how many panels are beside each other."""
    return 2 if count == 4 else min(3 if count <= 12 else 5, count)


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
        add_legend(
            figure, *figure.axes[0].get_legend_handles_labels(), format_label(data[hue], hue)
        )
    arrange(figure, data, title, names=bool(data.attrs.get("choices")))
    return figure


def add_legend(figure: Figure, handles: list[Any], texts: list[str], title: str) -> None:
    """Add a legend beside the panels."""
    lines = [wrap_text(text) for text in texts]
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
    lines = [*title.split("\n"), data.attrs["note"]]
    _fit(figure, axes, lines, (width, height))
    touching = [
        ax for ax in axes if len(_select_separate_ticks(ax.xaxis)) < len(list_tick_texts(ax.xaxis))
    ]
    if touching and names:
        _fit(figure, axes, lines, (_rotate_tick_labels(axes, width), height))
    for ax in () if names else touching:
        _thin(ax.xaxis)
    for ax in figure.axes:
        _scale_labels(ax.xaxis)
        _scale_labels(ax.yaxis)
    _lay_out(figure)
    figure.set_layout_engine("none")  # all is in its place: saving need not compute it again


def _lay_out(figure: Figure) -> None:
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)


def _fit(figure: Figure, axes: list[Axes], lines: list[str], size: tuple[float, float]) -> None:
    """Make the figure as large as its panels, at this size, and all that is around them need.

    It is at least as high as its legend. Lines are written over the panels.
    """
    columns = count_columns(len(axes))
    numbers = (columns, math.ceil(len(axes) / columns))
    tall = max((made.get_window_extent().height for made in figure.legends), default=0.0)
    for _ in range(4):
        _write_title(figure, lines)
        _lay_out(figure)
        have = np.min([ax.get_window_extent().size for ax in axes], axis=0) / figure.dpi
        width, height = figure.get_size_inches() + numbers * (size - have)
        figure.set_size_inches(width, max(height, tall / figure.dpi + 0.3))


def _write_title(figure: Figure, lines: list[str]) -> None:
    """Write lines over the panels, not over the legend."""
    beside = sum(made.get_window_extent().width for made in figure.legends) / figure.dpi
    width = figure.get_figwidth()
    letters = int(LETTERS_PER_INCH * (width - beside - 0.2))
    folded = [textwrap.fill(line, letters) for line in lines if line]
    if folded:
        figure.suptitle("\n".join(folded), fontsize=10, x=0.5 * (width - beside) / width)


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
