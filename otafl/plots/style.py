"""Style of figures: colours, markers and lines of curves, and texts of variables and values.

Markers and line styles differ as well as colours, so that a figure can be read in grey.

References
----------
Okabe, Ito 2008, "Color Universal Design".
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from otafl.results import coordinates
from otafl.results.coordinates import format_value

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
LEGEND_WIDTH = 32
"""Letters in a line of a legend or under a tick: choices with their settings are long."""
MANY = 7
"""More curves than this in one panel are hard to distinguish; `draw_overview` draws no more."""
LARGEST = 1e100
"""Larger values, of models that diverge, are not drawn, since a logarithmic axis fails there."""
DECADES = 100.0
"""Positive values that span more than this factor are drawn on a logarithmic axis."""


def get_style(i: int) -> dict[str, Any]:
    """Return colour and marker of curve i.

    Colours come round after seven; the marker and the line are then other ones.
    """
    turn = i // len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[(i + turn) % len(MARKERS)],
        "markersize": 4.5,
    }


def draw_banded_line(
    ax: Axes, i: int, name: str, values: tuple[np.ndarray, ...], markers: int, step: str = ""
) -> None:
    """Draw curve i with its band.

    Parameters
    ----------
    values : abscissa, ordinate, lower and upper end of the band [n]; without a band where the ends
        are NaN, and without what is beyond `LARGEST`.
    markers : approximate largest number of markers, shifted so that those of two
        curves do not coincide.
    step : where a staircase has its steps, as "post"; else a line.
    """
    doubles = (np.asarray(one, float) for one in values)  # of single precision in small copies
    x, y, low, high = (np.where(np.abs(one) < LARGEST, one, np.nan) for one in doubles)
    every = max(1, len(x) // markers)
    style = get_style(i) | {"linestyle": LINES[(i + 2 * (i // len(COLOURS))) % len(LINES)]}
    if step:
        style["drawstyle"] = f"steps-{step}"
    ax.plot(x, y, label=name, markevery=((i * every // 3) % every, every), linewidth=1.4, **style)
    band = {"where": np.isfinite(low), "step": step or None, "color": style["color"]}
    ax.fill_between(x, low, high, alpha=0.18, linewidth=0, **band)


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


def format_coordinate(data: xr.Dataset, name: str, value: Any) -> str:
    """Write a coordinate and one value of it, as in "power policy: gbma".

    Of a joint axis, whose values say what they are, it is the value.
    """
    return (
        format_value(value) if name == "zip" else coordinates.format_coordinate(data, name, value)
    )


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
