"""Panels, ticks, legends and titles, settled by measuring what is drawn: nothing overlaps, nothing
is cut."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from otafl.analysis.figures import shown
from otafl.plots.style import LEGEND_WIDTH, named, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

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


def panels(
    data: xr.Dataset, share: bool = True, size: tuple[float, float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each value of the facet, titled; one panel without a facet.

    size: inches of a panel. share: all panels have the same limits.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    facet = data.attrs["facet"]
    count = data.sizes[facet] if facet else 1
    columns = in_a_row(count)
    rows = math.ceil(count / columns)
    width, height = size or panel_size(count)
    letters = int(LETTERS_PER_INCH * width)
    figure = Figure(figsize=(0.8 + (width + 0.2) * columns, 0.5 + (height + 0.4) * rows))
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained")
    grid = figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False).ravel()
    for i, ax in enumerate(grid):
        ax.set_visible(i < count)
        # shared axes hide the labels of panels that have nothing below them
        bottom = i + columns >= count
        ax.tick_params(labelbottom=bottom, labelleft=i % columns == 0)
        ax.set_xlabel(wrapped(data.attrs["x_label"], max(24, letters)) if bottom else "")
        beside = wrapped(data.attrs["y_label"], max(20, int(LETTERS_PER_INCH * height)))
        ax.set_ylabel(beside if i % columns == 0 else "")
        for axis in (ax.xaxis, ax.yaxis):
            axis.get_major_formatter().set_useOffset(False)
        if facet and i < count:
            title = wrapped(named(data, facet, data[facet].values[i]), letters)
            ax.set_title(title, fontsize=10)
    return figure, list(grid[:count])


def in_a_row(count: int) -> int:
    """Panels beside each other."""
    return 2 if count == 4 else min(3 if count <= 12 else 5, count)


def panel_size(count: int) -> tuple[float, float]:
    """Inches of each of so many panels."""
    return PANEL if count > 1 else ALONE


def panel_data(data: xr.Dataset, i: int) -> xr.Dataset:
    """What panel i shows."""
    facet = data.attrs["facet"]
    return data.isel({facet: i}) if facet else data


def plain_axes(ax: Axes) -> None:
    """A light grid, no box."""
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def numeric_ticks(ax: Axes, values: np.ndarray) -> None:
    """A tick at each value where there are few; a log axis where they grow by a factor."""
    values = values[np.isfinite(values)]
    if len(values) > 2 and values[0] > 0:
        ratios = values[1:] / values[:-1]
        if ratios.min() > 1.5 and ratios.max() < 4 * ratios.min() and values[-1] > 30 * values[0]:
            ax.set_xscale("log")
    if len(values) <= 8:
        ax.set_xticks(values, [shown(value) for value in values])
        ax.set_xticks([], minor=True)


def legend(figure: Figure, handles: list[Any], texts: list[str], title: str) -> None:
    """A legend beside the panels, in a figure that is as high as it at least."""
    lines = [wrapped(text) for text in texts]
    tall = sum(text.count("\n") + 1 for text in lines)
    columns = math.ceil(tall / 45)
    made: Legend = figure.legend(
        handles,
        lines,
        title=wrapped(title, LEGEND_WIDTH),
        alignment="left",
        loc="outside right upper",
        ncols=columns,
    )
    height = made.get_window_extent().height / figure.dpi + 0.3
    figure.set_figheight(max(figure.get_figheight(), height))


def name_ticks(axis: Axis, names: list[str]) -> None:
    """Names, folded, under the places 0, 1, ... of choices."""
    axis.set_ticks(range(len(names)), [wrapped(name) for name in names])
    axis.set_ticks([], minor=True)


def settle(
    figure: Figure, title: str = "", size: tuple[float, float] | None = None, choices: bool = False
) -> None:
    """Writes the title in lines that fit, mends ticks that overlap, and lets the figure grow until
    its panels have their size (in inches) beside all that is written around them.

    choices: there are names under the ticks, which are turned where they overlap; numbers are
    thinned out.
    """
    axes = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]
    size = size or panel_size(len(axes))
    _write_title(figure, title)
    _grow(figure, axes, size)
    _write_title(figure, title)
    if choices and any(_overlap(_boxes(ax.xaxis), 0) for ax in axes):
        _grow(figure, axes, (_turn(axes, size[0]), size[1]))
    if not choices:
        for ax in axes:
            _thin(ax.xaxis, 0)
            _thin(ax.yaxis, 1)
    for ax in figure.axes:
        _scale_labels(ax.xaxis)
        _scale_labels(ax.yaxis)
    _lay_out(figure)
    figure.set_layout_engine("none")  # all is in its place: saving need not compute it again


def _lay_out(figure: Figure) -> bool:
    """Puts all in its place; False where what is written around the panels leaves no room."""
    engine = figure.get_layout_engine()
    assert engine is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            engine.execute(figure)
        except UserWarning:
            return False
    return True


def _write_title(figure: Figure, title: str) -> None:
    """Over the panels, not over the legend."""
    beside = sum(made.get_window_extent().width for made in figure.legends) / figure.dpi
    width = figure.get_figwidth()
    letters = int(LETTERS_PER_INCH * (width - beside - 0.2))
    lines = [textwrap.fill(part, letters) for part in title.split("\n") if part]
    if lines:
        figure.suptitle("\n".join(lines), fontsize=10, x=0.5 * (width - beside) / width)


def _scale_labels(axis: Axis) -> None:
    """Powers of ten that the numbers of an axis leave out go to its units: [$10^7$ J]."""
    from matplotlib.ticker import ScalarFormatter

    formatter = axis.get_major_formatter()
    factor = formatter.get_offset().replace("\N{MINUS SIGN}", "-")
    if not isinstance(formatter, ScalarFormatter) or not factor:
        return
    axis.get_offset_text().set_visible(False)
    text, power = axis.get_label_text(), f"$10^{{{round(math.log10(float(factor)))}}}$"
    if text:
        scaled = re.sub(r"\[(?!\$)(.*?)\]", lambda found: f"[{power} {found[1]}]", text, count=1)
        if scaled == text:
            label, line, better = text.partition("\n(")
            scaled = f"{label} [{power}]{line}{better}"
        axis.set_label_text(scaled)


def _grow(figure: Figure, axes: list[Axes], size: tuple[float, float]) -> None:
    """Makes the figure larger until its panels are at least of this size."""
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
    """The texts of an axis' major ticks that are seen."""
    low, high = sorted(axis.get_view_interval())
    pad = 1e-9 * abs(high - low)
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if tick.label1.get_visible()
        and tick.label1.get_text()
        and low - pad <= tick.get_loc() <= high + pad
    ]


def _boxes(axis: Axis) -> list[Any]:
    return [text.get_window_extent() for text in tick_texts(axis)]


def _overlap(boxes: list[Any], side: int) -> bool:
    """Whether neighbours along x (side 0) or y (1) come closer than `GAP`."""
    ranges = sorted((box.min[side], box.max[side]) for box in boxes)
    return any(start < end + GAP for (_, end), (start, _) in itertools.pairwise(ranges))


def _turn(axes: list[Axes], width: float) -> float:
    """Turns names under ticks by an angle that their number allows; the width in inches that the
    panels need for it."""
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
    """Leaves out ticks whose numbers would touch the one before."""
    texts = tick_texts(axis)
    boxes = [text.get_window_extent() for text in texts]
    if not _overlap(boxes, side):
        return
    places = [text.get_position()[side] for text in texts]
    order = np.argsort([box.min[side] for box in boxes])
    kept: list[int] = []
    for i in order:
        if not kept or boxes[i].min[side] >= boxes[kept[-1]].max[side] + GAP:
            kept.append(int(i))
    axis.set_ticks([places[i] for i in kept], [texts[i].get_text() for i in kept])
    axis.set_ticks([], minor=True)
