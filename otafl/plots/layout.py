"""Lay out panels, ticks, legends and titles so that nothing overlaps and nothing is cut.

Matplotlib's constrained layout makes room for what is written around the panels of a figure whose
size is given. What it leaves open is measured here on what is drawn: how large the figure must be
for its panels, where texts are broken, and ticks that touch.
"""

from __future__ import annotations

import math
import re
import textwrap
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from otafl.plots.parts import parts
from otafl.plots.style import label, named, wrapped
from otafl.results.coordinates import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

PANEL = (2.8, 2.1)
"""Inches of one of several panels, without what is written around it."""
ALONE = (3.9, 2.7)
"""Inches of a panel that is the only one."""
WIDEST = 24.0
"""Inches: figures are not made wider to make room for names under ticks."""
GAP = 3.0
"""Pixels between texts at the least."""
LETTERS_PER_INCH = 13.0
"""Of labels and titles."""


def blank(size: tuple[float, float]) -> Figure:
    """Return a figure of this size in inches, without anything in it."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(
    data: xr.Dataset, size: tuple[float, float] | None = None
) -> tuple[Figure, list[tuple[Axes, xr.Dataset]]]:
    """Make a figure with a titled panel for each value of the facet; one panel without a facet.

    size: inches of a panel. Returns the panels with what each shows. All have the same limits.
    """
    facet, shows = data.attrs["facet"], [part for _, part in parts(data, "facet")]
    columns = in_a_row(len(shows))
    rows = math.ceil(len(shows) / columns)
    width, height = size or panel_size(len(shows))
    letters = int(LETTERS_PER_INCH * width)
    below = wrapped(data.attrs["x_label"], max(24, letters))
    beside = wrapped(data.attrs["y_label"], max(20, int(LETTERS_PER_INCH * height)))
    figure = blank((0.8 + (width + 0.2) * columns, 0.5 + (height + 0.4) * rows))
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
            title = named(data, facet, data[facet].values[i])
            ax.set_title(wrapped(title, letters), fontsize=10)
    return figure, list(zip(grid, shows, strict=False))


def in_a_row(count: int) -> int:
    """Return how many panels are beside each other."""
    return 2 if count == 4 else min(3 if count <= 12 else 5, count)


def panel_size(count: int) -> tuple[float, float]:
    """Return the inches of each of so many panels."""
    return PANEL if count > 1 else ALONE


def plain_axes(ax: Axes, **logarithmic: bool) -> None:
    """Draw a light grid and no box; make x or y logarithmic."""
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    for axis, wanted in logarithmic.items():
        if wanted:
            getattr(ax, f"set_{axis}scale")("log", nonpositive="clip")


def numeric_ticks(ax: Axes, values: np.ndarray) -> None:
    """Put a tick at each value where there are few; a log axis where they grow by a factor."""
    values = values[np.isfinite(values)]
    if len(values) > 2 and values[0] > 0:
        ratios = values[1:] / values[:-1]
        if ratios.min() > 1.5 and ratios.max() < 4 * ratios.min() and values[-1] > 30 * values[0]:
            ax.set_xscale("log")
    if len(values) <= 8:
        ax.set_xticks(values, [shown(value) for value in values])
        ax.set_xticks([], minor=True)


def hue_legend(figure: Figure, data: xr.Dataset) -> None:
    """Add a legend of what has a colour, where anything has."""
    hue = data.attrs["hue"]
    if hue:
        ax = figure.axes[0]
        legend(figure, *ax.get_legend_handles_labels(), label(data[hue], hue))


def legend(figure: Figure, handles: list[Any], texts: list[str], title: str) -> None:
    """Add a legend beside the panels, and make the figure as high as it at least."""
    lines = [wrapped(text) for text in texts]
    tall = sum(text.count("\n") + 1 for text in lines)
    made = figure.legend(
        handles,
        lines,
        title=wrapped(title),
        alignment="left",
        loc="outside right upper",
        ncols=math.ceil(tall / 45),
    )
    height = made.get_window_extent().height / figure.dpi + 0.3
    figure.set_figheight(max(figure.get_figheight(), height))


def name_ticks(axis: Axis, names: list[str]) -> None:
    """Write names, folded, under the places 0, 1, ... of choices."""
    axis.set_ticks(range(len(names)), [wrapped(name) for name in names])
    axis.set_ticks([], minor=True)


def settle(
    figure: Figure,
    data: xr.Dataset,
    title: str = "",
    size: tuple[float, float] | None = None,
    names: bool = False,
) -> None:
    """Write the title and the note in lines that fit, mend ticks that overlap, and make room.

    The figure grows until its panels have their size (in inches) beside all that is written around
    them.

    names: there are names under the ticks, which are turned where they overlap; numbers are
    thinned out.
    """
    axes = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]
    size = size or panel_size(len(axes))
    lines = [*title.split("\n"), data.attrs["note"]]
    _write_title(figure, lines)
    _grow(figure, axes, size)
    _write_title(figure, lines)
    if names and any(len(_apart(ax.xaxis, 0)) < len(tick_texts(ax.xaxis)) for ax in axes):
        _grow(figure, axes, (_turn(axes, size[0]), size[1]))
    if not names:
        for ax in axes:
            _thin(ax.xaxis, 0)
            _thin(ax.yaxis, 1)
    for ax in figure.axes:
        _scale_labels(ax.xaxis)
        _scale_labels(ax.yaxis)
    _lay_out(figure)
    figure.set_layout_engine("none")  # all is in its place: saving need not compute it again


def _lay_out(figure: Figure) -> bool:
    """Put all in its place; False where what is written around the panels leaves no room."""
    engine = figure.get_layout_engine()
    assert engine is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            engine.execute(figure)
        except UserWarning:
            return False
    return True


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


def _grow(figure: Figure, axes: list[Axes], size: tuple[float, float]) -> None:
    """Make the figure larger until its panels are at least of this size."""
    columns = in_a_row(len(axes))
    numbers = (columns, math.ceil(len(axes) / columns))
    for _ in range(4):
        if not _lay_out(figure):
            figure.set_size_inches(*(figure.get_size_inches() + np.array(size)))
            continue
        boxes = [ax.get_window_extent() for ax in axes]
        have = [min(box.size[side] for box in boxes) / figure.dpi for side in (0, 1)]
        short = [max(0.0, wanted - is_) for wanted, is_ in zip(size, have, strict=True)]
        if max(short) < 0.02:
            return
        width, height = figure.get_size_inches()
        figure.set_size_inches(width + numbers[0] * short[0], height + numbers[1] * short[1])
    _lay_out(figure)


def tick_texts(axis: Axis) -> list[Any]:
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


def _apart(axis: Axis, side: int) -> list[Any]:
    """Return the texts of ticks that do not touch the one before, along x (side 0) or y (1).

    Texts touch that come closer than `GAP`.
    """
    kept, end = [], -math.inf
    boxes = [(text.get_window_extent(), text) for text in tick_texts(axis)]
    for box, text in sorted(boxes, key=lambda pair: pair[0].min[side]):
        if box.min[side] >= end + GAP:
            kept.append(text)
            end = box.max[side]
    return kept


def _turn(axes: list[Axes], width: float) -> float:
    """Turn names under ticks by an angle that their number allows.

    Returns the width in inches that the panels need for it.
    """
    texts = [text for ax in axes for text in tick_texts(ax.xaxis)]
    height = max(text.get_text().count("\n") + 1 for text in texts) * 1.3
    height *= texts[0].get_fontsize() / 72
    number = max(len(tick_texts(ax.xaxis)) for ax in axes)
    room = WIDEST / in_a_row(len(axes))
    needed = {angle: number * height / math.sin(math.radians(angle)) for angle in (30, 90)}
    angle = 30 if needed[30] <= max(width, 0.6 * room) else 90
    for text in texts:
        text.set(rotation=angle, ha="right", rotation_mode="anchor")
        text.set(va="center" if angle == 90 else "top")
    return max(width, min(needed[angle], room))


def _thin(axis: Axis, side: int) -> None:
    """Leave out ticks whose numbers would touch the one before."""
    kept = _apart(axis, side)
    if len(kept) < len(tick_texts(axis)):
        axis.set_ticks([t.get_position()[side] for t in kept], [t.get_text() for t in kept])
        axis.set_ticks([], minor=True)
