"""Figures in words, for those who cannot see them."""

from __future__ import annotations

import itertools

import numpy as np
import xarray as xr

from otafl.analysis.figures import shown
from otafl.analysis.summary import number
from otafl.plots.curves import drawn
from otafl.plots.style import label

MOST = 12
"""Curves or points that are told one by one."""


def described(data: xr.Dataset) -> str:
    """What a figure shows: its kind, its axes, and the numbers that a glance would take from it."""
    kind = data.attrs["kind"]
    tell = {"curves": _curves, "heatmap": _heatmap, "pareto": _front, "cdf": _distribution}
    return tell[kind](data)


def _curves(data: xr.Dataset) -> str:
    attrs = data.attrs
    said = f"Curves of {attrs['y_label']} against {attrs['x_label']}{_split(data)}."
    ends: list[str] = []
    for name, curve in _each(data):
        mean = curve["mean"].values[drawn(curve)]
        if mean.size and len(ends) < MOST:
            ends.append(f"{name} {number(float(mean[-1]), 3)}".strip())
    return f"{said} Last values: {'; '.join(ends)}." if ends else said


def _heatmap(data: xr.Dataset) -> str:
    attrs = data.attrs
    said = f"Heat map of {attrs['z_label']} over {attrs['x_label']} and {attrs['y_label']}"
    said += f"{_split(data)}."
    mean = data["mean"]
    if not bool(mean.notnull().any()):
        return said
    told = []
    for word, flat in (("Highest", mean.argmax(...)), ("lowest", mean.argmin(...))):
        one = mean.isel(flat)
        at = ", ".join(
            f"{label(data[dim], str(dim))} {shown(one[dim].values)}" for dim in mean.dims
        )
        told.append(f"{word} {number(float(one), 3)} at {at}")
    return f"{said} {'; '.join(told)}."


def _front(data: xr.Dataset) -> str:
    attrs = data.attrs
    count = int(np.isfinite(data["x"]).sum())
    said = f"{count} points of {attrs['y_label']} against {attrs['x_label']}{_split(data)}."
    told = []
    for place in np.argwhere(data["front"].values)[:MOST]:
        one = data.isel(dict(zip(data["x"].dims, place, strict=True)))
        name = ", ".join(shown(one[dim].values) for dim in data["x"].dims)
        told.append(f"{name} ({number(float(one['x']), 3)}, {number(float(one['y']), 3)})")
    return f"{said} Pareto front: {'; '.join(told)}." if told else said


def _distribution(data: xr.Dataset) -> str:
    said = f"Distribution over devices of {data.attrs['x_label']}{_split(data)}."
    medians: list[str] = []
    for name, curve in _each(data):
        share, value = curve["share"].values, curve["value"].values
        reached = np.flatnonzero(share >= 0.5)
        if reached.size and len(medians) < MOST:
            medians.append(f"{name} {number(float(value[reached[0]]), 3)}".strip())
    return f"{said} Medians: {'; '.join(medians)}." if medians else said


def _split(data: xr.Dataset) -> str:
    """By what the figure tells curves and panels apart."""
    said = ""
    for flag, word in (("hue", "colour"), ("facet", "panel")):
        name = data.attrs.get(flag)
        if name:
            values = ", ".join(shown(value) for value in data[name].values)
            said += f"; a {word} for each {label(data[name], name)}: {values}"
    return said


def _each(data: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """(name, data) of each curve."""
    dims = [data.attrs[flag] for flag in ("facet", "hue") if data.attrs.get(flag)]
    found = []
    for place in itertools.product(*(range(data.sizes[dim]) for dim in dims)):
        part = data.isel(dict(zip(dims, place, strict=True)))
        found.append((", ".join(shown(part[dim].values) for dim in dims), part))
    return found
