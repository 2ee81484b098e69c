"""Split what is drawn into panels and curves, and say by what."""

from __future__ import annotations

import re

import numpy as np
import xarray as xr

from otafl.plots.style import format_label
from otafl.results.coordinates import format_value

MAX_PANELS = 12
"""Largest number of curves or points that a text describes one by one."""


def split_parts(data: xr.Dataset, *flags: str) -> list[tuple[str, xr.Dataset]]:
    """Split what is drawn by the dims of these flags, "facet" or "hue", as far as it has them.

    Returns the values of these dims in words, and what is drawn at them.
    """
    dims = [data.attrs[flag] for flag in flags if data.attrs[flag]]
    found = []
    for place in np.ndindex(*(data.sizes[dim] for dim in dims)):
        part = data.isel(dict(zip(dims, place, strict=True)))
        found.append((", ".join(_format_value(part[dim].values) for dim in dims), part))
    return found


def _format_value(value: np.ndarray) -> str:
    """Write a value without the module of a notebook's own functions, `__main__`.

    matplotlib leaves texts that begin with an underscore out of its legends.
    """
    return re.sub("^(__main__:|_+)", "", format_value(value))


def format_split(data: xr.Dataset) -> str:
    """Describe what distinguishes the curves and panels of the figure."""
    said = ""
    for flag, word in (("hue", "colour"), ("facet", "panel")):
        name = data.attrs.get(flag)
        if name:
            values = ", ".join(format_value(value) for value in data[name].values)
            said += f"; a {word} for each {format_label(data[name], name)}: {values}"
    return said
