"""Draw Pareto fronts: points of a sweep in two variables, those that no other one beats joined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from otafl.analysis.points import find_main_variable, format_label, list_axes
from otafl.core.errors import UserError
from otafl.plots import quantities
from otafl.plots.kinds import FigureRecipe
from otafl.plots.layout import (
    add_legend,
    finish,
    get_style,
    make_panels,
    spans_decades,
    split_parts,
    style_axes,
)
from otafl.results.end_values import DIVERGED
from otafl.results.variables import get_better_direction

COSTS = ("device_energy_j", "tx_energy_j", "uplink_symbols", "sim_time_s", "airtime_s")
"""What is drawn along x if nothing is said: the first that the result has."""
NOTED = 10
"""Points of a front that are named, at most."""

Point = tuple[float, float, str]
"""x, y and name of a point of the front."""


def pareto_data(
    ds: xr.Dataset,
    y: str | None = None,
    x: str | None = None,
    hue: str | None = None,
    facet: str | None = None,
    sel: quantities.Selection | None = None,
) -> xr.Dataset:
    """Compute what is drawn as a Pareto front: every point of the sweep is one.

    Parameters
    ----------
    y, x : variables, at the end of each trial (`results.end_values`); energies of devices are
        summed. None: the main accuracy and the main cost.
    hue, facet : dims whose values are colours, and panels.
    sel : dim -> the value of it that is drawn.

    Returns
    -------
    With dims ([facet], [hue], the other axes): x, x_std, y, y_std, mean and standard deviation
    (n - 1) over the trials in which both are finite, and for y those that diverged
    (`results.end_values.count_diverged`); trials: how many y is of; front: whether no other point
    of the panel is as good in both and better in one.

    Raises
    ------
    UserError : for unknown names, for a variable of which it is not known which way it is better,
        and where there is one point alone.
    """
    y, x = y or find_main_variable(ds), x or find_main_cost(ds)
    ways = [_get_direction(ds, flag, name) for flag, name in (("--x", x), ("--y", y))]
    if x == y:
        raise UserError(f"--x and --y must differ; got {x}")
    ds = quantities.select_values(ds, sel, hue=hue, facet=facet)
    named = [name for name in (facet, hue) if name]
    ends = {name: quantities.select_end(ds, name, [*list_axes(ds), *named]) for name in (x, y)}
    ds = quantities.swap_to_coordinates(ds.assign(ends), named, y)
    dims = [*named, *(dim for dim in list_axes(ds) if dim not in named)]
    across, up = (quantities.squeeze_undrawn(ds[name], dims) for name in (x, y))
    if math.prod(up.sizes[dim] for dim in dims) < 2:
        raise UserError("a Pareto front needs a sweep of two points at the least; here is one")
    paired = across.notnull() & up.notnull()
    table = xr.Dataset()
    guessed = paired | ds[DIVERGED].notnull() if DIVERGED in ds else paired
    for axis, values, there in (("x", across, paired), ("y", up, guessed)):
        found = quantities.compute_statistics(values.where(there), dims)
        names = {
            "mean": axis,
            "std": f"{axis}_std",
            "trials": {"x": "x_trials", "y": "trials"}[axis],
        }
        table = table.assign(found.rename(names))
    table["front"] = (dims, _mark_front(table, ways, bool(facet)))
    axes = {"x": across.rename(x), "y": up.rename(y)}
    table.attrs = quantities.build_attributes("pareto", ds, axes, y=y, x=x, hue=hue, facet=facet)
    table.attrs |= {"x_better": ways[0], "y_better": ways[1]}
    logs = {f"log_{one}": int(spans_decades(table[one].values)) for one in "xy"}
    return table.assign_attrs(logs, mark="bars")


def draw_pareto(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `pareto_data`.

    The front is a staircase; its points are filled, and have numbers that the legend explains.
    """
    attrs = data.attrs
    way = {f"{a}_label": f"{attrs[f'{a}_label']}\n({attrs[f'{a}_better']} is better)" for a in "xy"}
    figure, axes = make_panels(data.assign_attrs(way))
    fronts = [_draw_panel(ax, part) for ax, part in axes]
    names = list(dict.fromkeys(name for points in fronts for *_, name in points if name))
    if len(names) <= NOTED:
        for (ax, _), points in zip(axes, fronts, strict=True):
            # write beside each point of the front the number that its name has in the legend
            ax.margins(0.1)  # numbers stay between the axes
            outline = [withStroke(linewidth=2, foreground="white")]
            style: dict[str, Any] = {"fontsize": "small", "path_effects": outline, "zorder": 4}
            for x, y, name in points:
                if name:
                    number = str(names.index(name) + 1)
                    ax.annotate(number, (x, y), (5, 5), textcoords="offset points", **style)
    hue = attrs["hue"]
    handles, texts = _build_legend(data, names if len(names) <= NOTED else [])
    add_legend(figure, data, handles, texts, format_label(data[hue], hue) if hue else "")
    finish(figure, data, title)
    return figure


def find_main_cost(ds: xr.Dataset) -> str:
    """Return what to draw accuracy against if nothing is said.

    Raises UserError where there is no cost.
    """
    for name in COSTS:
        if name in ds and bool((ds[name] > 0).any()):
            return name
    raise UserError(f"this result has none of {', '.join(COSTS)}; name a variable with --x")


def find_non_dominated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which of the points [n], both smaller the better, no other one dominates.

    None is as good in both and better in one. NaN is never on the front.
    """
    at_least = (x[:, None] <= x) & (y[:, None] <= y)
    beaten = at_least & ((x[:, None] < x) | (y[:, None] < y))
    return np.isfinite(x) & np.isfinite(y) & ~beaten.any(0)


def _get_direction(ds: xr.Dataset, flag: str, name: str) -> str:
    """Return which way a variable is better. Raises UserError where that is not known."""
    quantities.check_variable(ds, flag, name)
    way = get_better_direction(name)
    if way is None:
        known = [str(one) for one in ds.data_vars if get_better_direction(str(one))]
        raise UserError(
            f"{flag} {name}: whether higher or lower is better is not known, so there is no front; "
            f"known for {', '.join(known)}"
        )
    return way


def _mark_front(table: xr.Dataset, ways: list[str], faceted: bool) -> np.ndarray:
    signs = [1.0 if way == "lower" else -1.0 for way in ways]
    across, up = (sign * table[axis].values for sign, axis in zip(signs, "xy", strict=True))
    rows = zip(across, up, strict=True) if faceted else [(across, up)]
    fronts = [find_non_dominated(a.ravel(), b.ravel()) for a, b in rows]
    return np.concatenate(fronts).reshape(across.shape)


def _draw_panel(ax: Axes, data: xr.Dataset) -> list[Point]:
    """Draw the points and the staircase; return the front's points, best x first."""
    for i, (_, group) in enumerate(split_parts(data, "hue")):
        flat = {name: group[name].values.ravel() for name in group.data_vars}
        style: dict[str, Any] = get_style(i) | {"markersize": 6.0, "linestyle": "none"}
        for on_front in (False, True):
            part = {name: values[flat["front"] == on_front] for name, values in flat.items()}
            up, across = (np.nan_to_num(part[f"{axis}_std"]) for axis in "yx")
            fill = style["color"] if on_front else "white"
            own = style | {"mfc": fill, "elinewidth": 0.8, "zorder": 3}
            ax.errorbar(part["x"], part["y"], up, across, **own)
    style_axes(ax, x=data.attrs["log_x"], y=data.attrs["log_y"])
    # the front from the best x on; names tell the axes without a colour
    others = [str(dim) for dim in data["x"].dims if dim != data.attrs["hue"]]
    points = []
    for place in np.argwhere(data["front"].values):
        one = data.isel(dict(zip(data["x"].dims, place, strict=True)))
        name = ", ".join(quantities.name_value(one[dim]) for dim in others)
        points.append((float(one["x"]), float(one["y"]), name))
    sign = 1.0 if data.attrs["x_better"] == "lower" else -1.0
    points = sorted(points, key=lambda point: sign * point[0])
    if points:
        across, up, _ = zip(*points, strict=True)
        ax.plot(across, up, drawstyle="steps-post", color="0.35", linewidth=1.2, zorder=2)
    return points


def _build_legend(data: xr.Dataset, names: list[str]) -> tuple[list[Any], list[str]]:
    """Return what the legend has: the hue's values, the numbered names, and what marks mean."""
    texts = [name for name, _ in split_parts(data, "hue") if name]
    bare: dict[str, Any] = {"linestyle": "none", "markersize": 6.0}
    handles = [Line2D([], [], **get_style(i) | bare) for i in range(len(texts))]
    handles += [
        Line2D([], [], marker=f"${i + 1}$", color="black", markeredgewidth=0.2, **bare)
        for i in range(len(names))
    ]
    grey: dict[str, Any] = {"color": "0.35", "marker": "o", "markersize": 6.0, "linewidth": 1.2}
    handles.append(Line2D([], [], **grey))
    handles.append(Line2D([], [], markerfacecolor="white", **grey | bare))
    return handles, [*texts, *names, "Pareto front", "dominated"]


RECIPE = FigureRecipe(
    pareto_data,
    draw_pareto,
    {f"{axis}{end}": f"{{{axis}}}{end}" for axis in "xy" for end in ("", "_std")},
    "{y}_{x}_pareto",
    ("y", "x", "hue", "facet"),
)
