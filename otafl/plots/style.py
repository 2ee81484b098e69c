"""What tells curves apart: colours, markers and lines, and how variables and values are written.

Colours are those of Okabe and Ito (2008), "Color Universal Design"; markers and line styles
differ too, so that a figure can be read in grey.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis import figures
from otafl.analysis.figures import shown

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
LEGEND_WIDTH = 32
"""Letters in a line of a legend or under a tick: choices with their settings are long."""
MANY = 7
"""More curves than this in one panel are hard to tell apart; `overview` draws no more."""
DECADES = 100.0
"""Positive values that span more than this factor are drawn on a logarithmic axis."""


def look(i: int) -> dict[str, Any]:
    """Colour and marker of curve i. Colours come round after seven; the marker and the line are
    then other ones."""
    turn = i // len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[(i + turn) % len(MARKERS)],
        "markersize": 4.5,
    }


def line(i: int) -> dict[str, Any]:
    """Line of curve i."""
    return {"linestyle": LINES[(i + 2 * (i // len(COLOURS))) % len(LINES)], "linewidth": 1.4}


def label(values: xr.DataArray, name: str) -> str:
    """A variable or coordinate with its units, as in "normalised SNR [dB]"."""
    units = str(values.attrs.get("units", "1"))
    said = str(values.attrs.get("long_name") or name.replace("_", " "))
    return said if units in ("1", "", "round") else f"{said} [{units}]"


def named(data: xr.Dataset, name: str, value: Any) -> str:
    """A coordinate and one value of it, as in "power policy: gbma"; of a joint axis, whose values
    say what they are, the value."""
    if name == "zip":
        return shown(value)
    return figures.named(data, name, value)


def wrapped(text: str, width: int = LEGEND_WIDTH) -> str:
    """In lines of `width` letters: units stay with their word, and words that are longer than a
    line are broken before their brackets only."""
    if "\n" in text:
        return "\n".join(wrapped(part, width) for part in text.split("\n"))
    if len(text) <= width:
        return text
    text = re.sub(r"(?<=\w)\(", " (", text.replace(" [", "\u00a0["))
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\u00a0", " ")


def spans_decades(values: np.ndarray) -> bool:
    """Whether all finite values are positive and more than two decades apart."""
    finite = values[np.isfinite(values)]
    return bool(finite.size and finite.min() > 0 and finite.max() > DECADES * finite.min())
