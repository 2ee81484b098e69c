"""Curves: a variable along a dim, or along another variable, mean and spread over trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from otafl.analysis.figures import shown
from otafl.core.errors import UserError
from otafl.plots.layout import (
    legend,
    name_ticks,
    numeric_ticks,
    panel_data,
    panels,
    plain_axes,
    settle,
)
from otafl.plots.quantities import (
    ADDED,
    SUMS,
    Selection,
    added_up,
    along_coordinates,
    at_the_end,
    check_distinct,
    check_variable,
    held,
    labels,
    lost_note,
    only_drawn,
    picked,
    statistics,
)
from otafl.plots.style import DECADES, label, line, look, spans_decades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG_ALWAYS = ("aggregation_nmse",)
SAME_END = 3.0
"""Curves whose ends lie within this factor differ in length, not in scale."""


def curve_data(
    ds: xr.Dataset,
    y: str,
    x: str,
    hue: str | None = None,
    facet: str | None = None,
    sel: Selection | None = None,
) -> xr.Dataset:
    """What is drawn, with dims ([facet], [hue], x).

    mean, std (with n - 1; NaN for one trial): over the finite trials. trials: how many these are.
    at: the abscissa where x is itself a variable over rounds (airtime_s), mean over the trials that
    `mean` is of. Energies of devices are summed over devices and causes that are not drawn.
    Without `round` among the dims it is the end of each trial (`results.final`); along `round` a
    trial that reached its target or ended keeps its value, a diverged one is left out. Raises
    UserError for unknown names, and for a dim that is neither drawn nor picked.
    """
    check_variable(ds, "--y", y)
    parametric = x in ds.data_vars
    if parametric:
        _check_abscissa(ds, x, y)
    drawn = [name for name in (facet, hue, "round" if parametric else x) if name]
    along = None if x == "round" else "round" if parametric else x
    check_distinct(x=along or x, hue=hue, facet=facet)
    ds = picked(ds, sel)
    if parametric and "round" not in ds[x].dims:
        raise UserError(f"--x {x}: with --sel round one point of a curve is left; leave out either")
    note = lost_note(ds)
    values = at_the_end(ds, y, drawn)
    ds = along_coordinates(ds.assign({y: values}), drawn, y)
    values = only_drawn(ds[y], drawn)
    table = statistics(values, drawn)
    abscissa: xr.DataArray = ds[x]
    if parametric:
        abscissa = added_up(held(ds, x).rename(x), drawn)
        same = only_drawn(abscissa, drawn, "--facet").where(values.notnull())
        table["at"] = statistics(same, drawn)["mean"]
    table.attrs = {"kind": "curves", "y": y, "x": x, "hue": hue or "", "facet": facet or ""}
    table.attrs |= labels(x=abscissa.rename(x), y=values.rename(y)) | {"note": note}
    table.attrs |= {"log_x": int(_log_x(table)), "log_y": int(_log_y(table))}
    return table


def draw_curves(data: xr.Dataset, title: str = "") -> Figure:
    """A figure of `curve_data`."""
    figure, axes = panels(data)
    hue, x = data.attrs["hue"], data.attrs["x"]
    choices = "at" not in data and data[x].dtype.kind not in "fiu"
    for i, ax in enumerate(axes):
        _panel(ax, panel_data(data, i), choices)
    if hue:
        handles, texts = axes[0].get_legend_handles_labels()
        legend(figure, handles, texts, label(data[hue], hue))
    settle(figure, "\n".join((title, data.attrs["note"])), choices=choices)
    return figure


def _check_abscissa(ds: xr.Dataset, x: str, y: str) -> None:
    """Raises UserError for a variable that a curve cannot be drawn against."""
    dims = [str(dim) for dim in ds[x].dims if dim not in ds["final_round"].dims]
    own = set(dims) - {"trial", "round"}
    if "round" in dims and (own <= set(ds[y].dims) or (x in SUMS and own <= set(ADDED))):
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


def _log_x(data: xr.Dataset) -> bool:
    """Abscissae over more than two decades, unless all curves grow to about the same end."""
    if "at" not in data:
        return False
    at = data["at"].values.reshape(-1, data.sizes["round"])
    positive = np.where(at > 0, at, np.nan)
    if not np.isfinite(positive).any():
        return False
    ends = np.array([row[np.isfinite(row)].max() for row in positive if np.isfinite(row).any()])
    span = np.nanmax(positive) / np.nanmin(positive)
    return bool(span > DECADES and ends.max() > SAME_END * ends.min())


def _log_y(data: xr.Dataset) -> bool:
    return data.attrs["y"] in LOG_ALWAYS or spans_decades(data["mean"].values)


def _panel(ax: Axes, data: xr.Dataset, choices: bool) -> None:
    """One set of axes: a curve for each value of the hue."""
    x, hue = data.attrs["x"], data.attrs["hue"]
    curves = [data.isel({hue: i}) for i in range(data.sizes[hue])] if hue else [data]
    for i, curve in enumerate(curves):
        name = shown(data[hue].values[i]) if hue else ""
        if choices:
            _points(ax, curve, i, len(curves), name)
        else:
            _line(ax, curve, i, name)
    plain_axes(ax)
    if data.attrs["log_y"]:
        ax.set_yscale("log", nonpositive="clip")
    if data.attrs["log_x"]:
        ax.set_xscale("log")
    if choices:
        name_ticks(ax.xaxis, [shown(value) for value in data[x].values])
        ax.set_xlim(-0.5, data.sizes[x] - 0.5)
    elif x != "round" and "at" not in data:
        numeric_ticks(ax, np.unique(data[x].values))


def _line(ax: Axes, curve: xr.Dataset, i: int, name: str) -> None:
    at = (curve["at"] if "at" in curve else curve[curve.attrs["x"]]).values
    mean, std = curve["mean"].values, curve["std"].values
    seen = drawn(curve)
    at, mean, std = at[seen], mean[seen], std[seen]
    style = look(i) | line(i)
    # at most about ten markers a curve, shifted so that those of two curves do not coincide
    step = max(1, len(at) // 10)
    ax.plot(at, mean, label=name, markevery=((i * step // 3) % step, step), **style)
    low = mean - std
    if curve.attrs["log_y"]:
        low = np.maximum(low, 0.1 * mean)
    banded = np.isfinite(std)
    ax.fill_between(
        at, low, mean + std, where=banded, color=style["color"], alpha=0.18, linewidth=0
    )


def _points(ax: Axes, curve: xr.Dataset, i: int, curves: int, name: str) -> None:
    """Values over choices have no order: points with bars, side by side."""
    places = np.arange(curve.sizes[curve.attrs["x"]]) + 0.5 * ((i + 0.5) / curves - 0.5)
    std = np.nan_to_num(curve["std"].values)
    style: dict[str, Any] = {"linestyle": "none", "capsize": 3} | look(i)
    ax.errorbar(places, curve["mean"].values, std, label=name, **style)


def drawn(data: xr.Dataset) -> np.ndarray:
    """Which values of `curve_data` can be drawn: finite, and positive on a logarithmic x axis."""
    seen = np.isfinite(data["mean"].values)
    if "at" in data:
        seen &= np.isfinite(data["at"].values)
        if data.attrs["log_x"]:
            seen &= data["at"].values > 0
    return seen
