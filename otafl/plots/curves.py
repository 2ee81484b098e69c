"""Draw curves: a variable along a dim or another variable, with mean and spread over trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from otafl.analysis.points import find_main_variable, is_numeric, list_axes
from otafl.core.errors import UserError
from otafl.plots import quantities
from otafl.plots.kinds import FigureRecipe
from otafl.plots.layout import (
    LARGEST,
    draw_panels,
    fit_names,
    get_panel_size,
    get_style,
    get_width,
    name_ticks,
    set_numeric_ticks,
    spans_decades,
    split_parts,
    style_axes,
)
from otafl.results.coordinates import format_value
from otafl.results.end_values import SUMMED_DIMS, sum_over_devices
from otafl.results.variables import SUMS

LOG_ALWAYS = ("aggregation_nmse",)


def curve_data(
    ds: xr.Dataset,
    y: str | None = None,
    x: str = "round",
    hue: str | None = None,
    facet: str | None = None,
    sel: quantities.Selection | None = None,
) -> xr.Dataset:
    """Compute what is drawn as curves.

    Without `round` among the dims it is the end of each trial (`results.end_values`); along `round`
    a trial that reached its target or ended keeps its value, a diverged one counts as a guess
    (`results.end_values.count_diverged`). Energies of devices are summed over devices and causes
    that are not drawn.

    Parameters
    ----------
    y : a variable; None: the main accuracy.
    x : a dim, or a variable over rounds (airtime_s).
    hue, facet : dims whose values are curves of a colour, and panels.
    sel : dim -> the value of it that is drawn.

    Returns
    -------
    With dims ([facet], [hue], x): mean and std (with n - 1; NaN for one trial) over the finite
    trials; trials: how many these are; drawn: whether a value can be drawn; at: the abscissa where
    x is itself a variable, mean over the trials that `mean` is of.

    Raises
    ------
    UserError : for unknown names, and for a dim that is neither drawn nor picked.
    """
    y = y or find_main_variable(ds)
    quantities.check_variable(ds, "--y", y)
    parametric = x in ds.data_vars
    if parametric:
        _check_abscissa(ds, x, y)
    drawn = [name for name in (facet, hue, "round" if parametric else x) if name]
    ds = quantities.select_values(ds, sel, x=drawn[-1], hue=hue, facet=facet)
    if parametric and "round" not in ds[x].dims:
        raise UserError(f"--x {x}: with --sel round one point of a curve is left; leave out either")
    ds, values = quantities.select_quantity(ds, y, drawn)
    table, abscissa = quantities.compute_statistics(values, drawn), ds[x]
    if parametric:
        abscissa = sum_over_devices(quantities.hold_last_value(ds, x).rename(x), drawn)
        same = quantities.squeeze_undrawn(abscissa, drawn, "--facet").where(values.notnull())
        table["at"] = quantities.compute_statistics(same, drawn)["mean"]
    axes = {"x": abscissa.rename(x), "y": values.rename(y)}
    table.attrs = quantities.build_attributes("curves", ds, axes, y=y, x=x, hue=hue, facet=facet)
    log_y = y in LOG_ALWAYS or spans_decades(table["mean"].values)
    choices = not parametric and not is_numeric(table[x])
    log_x = "at" in table and spans_decades(table["at"].max("round").values)
    table = table.assign_attrs(log_x=int(log_x), log_y=int(log_y), choices=int(choices))
    table.attrs["mark"] = "bars" if choices else "shading"
    seen = abs(table["mean"]) < LARGEST
    if "at" in table:
        seen &= (abs(table["at"]) < LARGEST) & ((table["at"] > 0) | (not log_x))
    return table.assign(drawn=seen)


def draw_curves(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `curve_data`."""
    width, height = get_panel_size(data)
    if data.attrs["choices"] and not get_width(data):
        width, _ = fit_names(_list_names(data), width)
    return draw_panels(data, title, _draw_panel, (width, height))


def _check_abscissa(ds: xr.Dataset, x: str, y: str) -> None:
    """Raise UserError for a variable that a curve cannot be drawn against."""
    dims = [str(dim) for dim in ds[x].dims if dim not in list_axes(ds)]
    own = set(dims) - {"trial", "round"}
    if "round" in dims and (own <= set(ds[y].dims) or (x in SUMS and own <= set(SUMMED_DIMS))):
        return
    able = [
        str(name)
        for name, one in ds.data_vars.items()
        if "round" in one.dims and (name in SUMS or not {"device", "level", "class"} & {*one.dims})
    ]
    why = "is no value round by round" if "round" not in dims else f"is one for each {min(own)}"
    raise UserError(
        f"--x {x}: {why}, so {y} cannot be drawn against it; take a dim, or one of "
        f"{', '.join(able)}, or --kind pareto for values at the end of the trials"
    )


def _draw_panel(ax: Axes, data: xr.Dataset) -> None:
    """Draw one set of axes: a curve for each value of the hue."""
    x, curves = data.attrs["x"], split_parts(data, "hue")
    for i, (name, curve) in enumerate(curves):
        if data.attrs["choices"]:
            _draw_points(ax, curve, i, len(curves), name)
        else:
            seen = curve["drawn"].values
            at = (curve["at"] if "at" in curve else curve[curve.attrs["x"]]).values[seen]
            mean, std = (curve[one].values[seen].astype(float) for one in ("mean", "std"))
            low, high = mean - std, np.where(mean + std < LARGEST, mean + std, np.nan)
            if curve.attrs["log_y"]:
                low = np.maximum(low, 0.1 * mean)
            style = get_style(i, len(at))
            ax.plot(at, mean, label=name, **style)
            ax.fill_between(at, low, high, alpha=0.18, linewidth=0, color=style["color"])
    style_axes(ax, x=data.attrs["log_x"], y=data.attrs["log_y"])
    if data.attrs["choices"]:
        names = _list_names(data)
        name_ticks(ax.xaxis, names, fit_names(names, data.attrs["panel_width"])[1])
        ax.set_xlim(-0.5, data.sizes[x] - 0.5)
    elif x == "round":
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    elif "at" not in data:
        set_numeric_ticks(ax, np.unique(data[x].values), data.attrs["panel_width"])


def _list_names(data: xr.Dataset) -> list[str]:
    return [format_value(value) for value in data[data.attrs["x"]].values]


def _draw_points(ax: Axes, curve: xr.Dataset, i: int, curves: int, name: str) -> None:
    """Draw points with bars, side by side: values over choices have no order."""
    places = np.arange(curve.sizes[curve.attrs["x"]]) + 0.5 * ((i + 0.5) / curves - 0.5)
    std = np.nan_to_num(curve["std"].values)
    style: dict[str, Any] = get_style(i) | {"linestyle": "none", "capsize": 3}
    ax.errorbar(places, curve["mean"].values, std, label=name, **style)


RECIPE = FigureRecipe(
    curve_data,
    draw_curves,
    {"at": "{x}", "mean": "{y}", "std": "{y}_std"},
    "{y}_{x}",
    ("y", "x", "hue", "facet"),
)
