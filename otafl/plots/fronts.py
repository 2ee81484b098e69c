"""Pareto fronts: every point of a sweep in two variables, those that no other one beats joined."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from otafl.analysis.figures import shown
from otafl.core.errors import UserError
from otafl.plots.directions import better
from otafl.plots.layout import GAP, legend, panel_data, panels, plain_axes, settle
from otafl.plots.quantities import (
    Selection,
    along_coordinates,
    at_the_end,
    check_distinct,
    check_variable,
    labels,
    lost_note,
    mean_of,
    only_drawn,
    picked,
    plain,
)
from otafl.plots.style import label, look, spans_decades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COSTS = ("device_energy_j", "tx_energy_j", "uplink_symbols", "sim_time_s", "airtime_s")
"""What is drawn along x if nothing is said: the first that the result has."""
NOTED = 10
"""Points of a front that are named, at most."""
LONGEST = 28
"""Letters of a point's name."""


def pareto_data(
    ds: xr.Dataset,
    y: str,
    x: str,
    hue: str | None = None,
    facet: str | None = None,
    sel: Selection | None = None,
) -> xr.Dataset:
    """What is drawn, with dims ([facet], [hue], the other axes): each value is one point.

    x, x_std, y, y_std: mean and standard deviation (n - 1) over the trials in which both are
    finite, at the end of each trial; energies of devices are summed. trials: how many these are.
    front: whether no other point of the panel is as good in both and better in one. Raises
    UserError for unknown names, for a variable of which it is not known which way it is better,
    and where there is one point alone.
    """
    ways = []
    for flag, name in (("--x", x), ("--y", y)):
        check_variable(ds, flag, name)
        ways.append(_direction(ds, flag, name))
    if x == y:
        raise UserError(f"--x and --y must differ; got {x}")
    check_distinct(hue=hue, facet=facet)
    ds = picked(ds, sel)
    note = lost_note(ds)
    axes = [str(dim) for dim in ds["final_round"].dims]
    named = [name for name in (facet, hue) if name]
    both = [at_the_end(ds, name, [*axes, *named]) for name in (x, y)]
    ds = along_coordinates(ds.assign({x: both[0], y: both[1]}), named, y)
    axes = [str(dim) for dim in ds["final_round"].dims]
    dims = [*named, *(dim for dim in axes if dim not in named)]
    across, up = (only_drawn(ds[name], dims) for name in (x, y))
    if math.prod(up.sizes[dim] for dim in dims) < 2:
        raise UserError("a Pareto front needs a sweep of two points at the least; here is one")
    paired = across.notnull() & up.notnull()
    table = xr.Dataset()
    for axis, values in (("x", across), ("y", up)):
        table[axis], table[f"{axis}_std"], table["trials"] = mean_of(values.where(paired), dims)
    table = plain(table, dims)
    table["front"] = (dims, _front(table, ways, bool(facet)))
    table.attrs = {"kind": "pareto", "y": y, "x": x, "hue": hue or "", "facet": facet or ""}
    table.attrs |= {"x_better": ways[0], "y_better": ways[1], "note": note}
    table.attrs |= labels(x=across.rename(x), y=up.rename(y))
    table.attrs |= {f"log_{axis}": int(spans_decades(table[axis].values)) for axis in "xy"}
    return table


def draw_pareto(data: xr.Dataset, title: str = "") -> Figure:
    """A figure of `pareto_data`: the front is a staircase; its points are filled and named by the
    axes that have no colour."""
    said = data.assign_attrs(
        {f"{axis}_label": f"{data.attrs[f'{axis}_label']}\n({_arrow(data, axis)})" for axis in "xy"}
    )
    figure, axes = panels(said)
    names = [_panel(ax, panel_data(data, i)) for i, ax in enumerate(axes)]
    hue = data.attrs["hue"]
    handles, texts = _entries(data)
    legend(figure, handles, texts, label(data[hue], hue) if hue else "")
    settle(figure, "\n".join((title, data.attrs["note"])))
    for ax, own in zip(axes, names, strict=True):
        _name_points(ax, own)
    return figure


def main_cost(ds: xr.Dataset) -> str:
    """What to draw accuracy against if nothing is said. Raises UserError where there is no cost."""
    for name in COSTS:
        if name in ds and bool((ds[name] > 0).any()):
            return name
    raise UserError(f"this result has none of {', '.join(COSTS)}; name a variable with --x")


def non_dominated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which of the points [n], both smaller the better, no other one dominates: none is as good in
    both and better in one. NaN is never on the front."""
    at_least = (x[:, None] <= x) & (y[:, None] <= y)
    better = at_least & ((x[:, None] < x) | (y[:, None] < y))
    return np.isfinite(x) & np.isfinite(y) & ~better.any(0)


def _direction(ds: xr.Dataset, flag: str, name: str) -> str:
    way = better(name)
    if way is None:
        known = [str(one) for one in ds.data_vars if better(str(one))]
        raise UserError(
            f"{flag} {name}: whether higher or lower is better is not known, so there is no front; "
            f"known for {', '.join(known)}"
        )
    return way


def _front(table: xr.Dataset, ways: list[str], faceted: bool) -> np.ndarray:
    signs = [1.0 if way == "lower" else -1.0 for way in ways]
    across, up = (sign * table[axis].values for sign, axis in zip(signs, "xy", strict=True))
    rows = [(across, up)]
    if faceted:
        rows = list(zip(across, up, strict=True))
    fronts = [non_dominated(a.ravel(), b.ravel()) for a, b in rows]
    return np.concatenate(fronts).reshape(table["x"].shape)


def _arrow(data: xr.Dataset, axis: str) -> str:
    return f"{data.attrs[f'{axis}_better']} is better"


def _panel(ax: Axes, data: xr.Dataset) -> list[tuple[float, float, str]]:
    """Points and staircase; returns (x, y, name) of the front's points, best x first."""
    hue, attrs = data.attrs["hue"], data.attrs
    groups = [data.isel({hue: i}) for i in range(data.sizes[hue])] if hue else [data]
    for i, group in enumerate(groups):
        flat = {name: group[name].values.ravel() for name in group.data_vars}
        style: dict[str, Any] = look(i) | {"markersize": 6.0, "linestyle": "none"}
        for on_front in (False, True):
            part = {name: values[flat["front"] == on_front] for name, values in flat.items()}
            up, across = (np.nan_to_num(part[f"{axis}_std"]) for axis in "yx")
            fill = style["color"] if on_front else "white"
            own = style | {"mfc": fill, "elinewidth": 0.8, "zorder": 3}
            ax.errorbar(part["x"], part["y"], up, across, **own)
    for axis, scale in (("x", ax.set_xscale), ("y", ax.set_yscale)):
        if attrs[f"log_{axis}"]:
            scale("log", nonpositive="clip")
    plain_axes(ax)
    points = _on_front(data)
    if points:
        across, up, _ = zip(*points, strict=True)
        ax.plot(across, up, drawstyle="steps-post", color="0.35", linewidth=1.2, zorder=2)
    return points


def _on_front(data: xr.Dataset) -> list[tuple[float, float, str]]:
    """The front from the best x on; names have the axes without a colour."""
    others = [str(dim) for dim in data["x"].dims if dim != data.attrs["hue"]]
    points = []
    for place in np.argwhere(data["front"].values):
        one = data.isel(dict(zip(data["x"].dims, place, strict=True)))
        parts = []
        for dim in others:
            parts.append(_said(one[dim], data[dim].dtype.kind in "fiu"))
        name = ", ".join(parts)
        name = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
        points.append((float(one["x"]), float(one["y"]), name))
    sign = 1.0 if data.attrs["x_better"] == "lower" else -1.0
    return sorted(points, key=lambda point: sign * point[0])


def _said(coordinate: xr.DataArray, number: bool) -> str:
    """A value with what makes it plain: "10 dB", "gbma", "learning rate 0.1"."""
    units, text = coordinate.attrs.get("units", "1"), shown(coordinate.values)
    if units not in ("1", ""):
        return f"{text} {units}"
    return f"{str(coordinate.name).replace('_', ' ')} {text}" if number else text


def _entries(data: xr.Dataset) -> tuple[list[Any], list[str]]:
    """What the legend has: the hue's values, and what filled points and the line mean."""
    from matplotlib.lines import Line2D

    hue = data.attrs["hue"]
    handles, texts = [], []
    for i in range(data.sizes[hue]) if hue else ():
        handles.append(Line2D([], [], linestyle="none", **look(i) | {"markersize": 6.0}))
        texts.append(shown(data[hue].values[i]))
    grey: dict[str, Any] = {"color": "0.35", "marker": "o", "markersize": 6.0, "linewidth": 1.2}
    handles.append(Line2D([], [], **grey))
    handles.append(Line2D([], [], **grey | {"linestyle": "none", "markerfacecolor": "white"}))
    return handles, [*texts, "Pareto front", "dominated"]


def _name_points(ax: Axes, points: list[tuple[float, float, str]]) -> None:
    """Names beside the points of a short front, where there is room for them."""
    if len(points) > NOTED:
        return
    inside = ax.get_window_extent()
    marks = [ax.transData.transform(point[:2]) for point in points]
    taken: list[Any] = []
    places = [(6, 5, "left", "bottom"), (6, -5, "left", "top")]
    places += [(-6, 5, "right", "bottom"), (-6, -5, "right", "top")]
    for x, y, name in points:
        for right, above, ha, va in places if name else ():
            text = ax.annotate(
                *(name, (x, y), (right, above)),
                textcoords="offset points",
                fontsize=8,
                color="0.25",
                ha=ha,
                va=va,
            )
            box = text.get_window_extent().padded(GAP)
            free = inside.x0 <= box.x0 and box.x1 <= inside.x1
            free &= inside.y0 <= box.y0 and box.y1 <= inside.y1
            free &= not any(box.overlaps(other) for other in taken)
            free &= not any(box.contains(*mark) for mark in marks)
            if free:
                taken.append(box)
                break
            text.remove()
