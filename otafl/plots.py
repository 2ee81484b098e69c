"""Figures from results: mean over trials with a band of one standard deviation.

`curve_data` computes what is drawn, `plot` draws it, `overview` picks what is worth a first look.
Colours are those of Okabe and Ito (2008), "Color Universal Design"; markers and line styles
differ too, so that a figure can be read in grey.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from otafl.errors import UserError
from otafl.figures import check_suffix, listed, long_name, named, pick, save, shown, unknown
from otafl.results import final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
LEGEND_WIDTH = 32
"""Letters in a line of a legend or under a tick: choices with their settings are long."""
MANY = 7
"""More curves than this in one panel are hard to tell apart; `overview` draws no more."""

Selection = Mapping[str, Any]


def curve_data(
    ds: xr.Dataset,
    y: str,
    x: str,
    hue: str | None = None,
    facet: str | None = None,
    sel: Selection | None = None,
) -> xr.Dataset:
    """What `plot` draws, with dims ([facet], [hue], x).

    mean, std (with n - 1; NaN for one trial): over the finite trials. trials: how many these are.
    at: the abscissa where x is itself a variable over rounds (airtime_s), mean over trials.
    Without `round` among the dims it is the end of each trial (`results.final`); along `round` a
    trial that reached its target keeps its value, a diverged one is left out. Raises UserError
    for unknown names, and for a dim that is neither drawn nor picked.
    """
    if y not in ds.data_vars:
        raise unknown(f"--y {y}", "a variable of this result", y, ds.data_vars)
    parametric = x in ds.data_vars and "round" in ds[x].dims
    drawn = [name for name in (facet, hue, "round" if parametric else x) if name]
    if len(set(drawn)) < len(drawn):
        raise UserError(f"--x, --hue and --facet must differ; got {', '.join(drawn)}")
    for name, value in (sel or {}).items():
        ds = pick(ds, name, value)
    if "round" in ds[y].dims:
        ds = ds.assign({y: _held(ds, y) if "round" in drawn else final(ds, y)})
    ds = _along_coordinates(ds, drawn, y)
    table = _statistics(_only_drawn(ds[y], drawn), drawn)
    if parametric:
        table["at"] = _statistics(_only_drawn(ds[x], drawn), drawn)["mean"]
    return table.assign_attrs(y=y, x=x, hue=hue or "", facet=facet or "")


def plot(
    ds: xr.Dataset,
    y: str,
    x: str,
    hue: str | None = None,
    facet: str | None = None,
    path: Path | str | None = None,
    sel: Selection | None = None,
    title: str | None = None,
) -> Figure:
    """Draw `curve_data` of the same arguments and save it to `path` (PNG, PDF or SVG)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if path is not None:
        check_suffix(path)
    data = curve_data(ds, y, x, hue, facet, sel)
    panels = data[facet].size if facet else 1
    columns = min(3, panels) if panels != 4 else 2
    rows = math.ceil(panels / columns)
    size = (1.2 + 3.4 * columns + (1.6 if hue else 0), 0.7 + 2.8 * rows)
    figure = Figure(figsize=size if panels > 1 else (5.2 + (1.6 if hue else 0), 3.6))
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for i, ax in enumerate(grid):
        if i >= panels:
            ax.set_visible(False)
            continue
        part = data.isel({facet: i}) if facet else data
        _panel(ax, part, ds, hue)
        if facet:
            ax.set_title(named(ds, facet, data[facet].values[i]), fontsize=10)
        # shared axes hide the labels of panels that have nothing below them
        ax.tick_params(labelbottom=i + columns >= panels)
        ax.set_xlabel(_label(ds, x) if i + columns >= panels else "")
        ax.set_ylabel(textwrap.fill(_label(ds, y), 40) if i % columns == 0 else "")
    if hue:
        handles, labels = grid[0].get_legend_handles_labels()
        labels = [textwrap.fill(label, LEGEND_WIDTH) for label in labels]
        longest = max(map(len, "\n".join(labels).split("\n")))
        lines = sum(label.count("\n") + 1 for label in labels)
        width, height = figure.get_size_inches()  # room for more than a dozen letters
        figure.set_size_inches(width + 0.07 * max(0, longest - 16), max(height, 0.7 + 0.19 * lines))
        figure.legend(
            *(handles, labels),
            title=_label(ds, hue),
            alignment="left",
            loc="outside right upper",
        )
    notes = [title or "", _diverged(ds, sel)]
    figure.suptitle("\n".join(note for note in notes if note), fontsize=10)
    if path is not None:
        save(figure, Path(path))
    return figure


def overview(ds: xr.Dataset, path: Path | str) -> Figure:
    """The picture written beside a result: accuracy against the first numeric axis of a sweep with
    at least three values, else against the round; other axes as hue and panels. Axes that are
    left, or too long, stay at their first value, which the title says."""
    y = main_variable(ds)
    for name, along in ds.coords.items():
        if along.dims == ("zip",) and name != "zip" and len(np.unique(along)) == along.size:
            ds = ds.swap_dims(zip=name)
            break
    free = [d for d in ds[y].dims if d not in ("trial", "round", "device") and ds.sizes[d] > 1]
    sel: dict[str, Any] = {
        str(d): 0 for d in ds[y].dims if d not in ("trial", "round") and d not in free
    }
    numeric = [d for d in free if ds[d].dtype.kind in "fiu" and ds.sizes[d] > 2]
    x = "round"
    if numeric and (len(free) > 1 or ds.sizes[numeric[0]] > MANY):
        x = str(numeric[0])
    # choices tell more as curves of one panel than numbers do
    rest = sorted((d for d in free if d != x), key=lambda d: ds[d].dtype.kind in "fiu")
    hue = next((str(d) for d in rest if ds.sizes[d] <= MANY), None)
    facet = next((str(d) for d in rest if ds.sizes[d] <= 9 and d != hue), None)
    sel |= {str(d): 0 for d in rest if d not in (hue, facet)}
    said = [named(ds, str(d), ds[d].values[0]) for d in rest if d in sel]
    picked = ds.isel(sel)
    return plot(picked, y, x, hue, facet, path, title=", ".join(said) or None)


def _held(ds: xr.Dataset, name: str) -> xr.DataArray:
    """The variable, constant from the record on at which a trial reached its target: else the mean
    would jump to that of the slower trials."""
    if "stop_round" not in ds:
        return ds[name]
    after = (ds["round"] > ds["stop_round"]) & (ds["round"] <= ds["final_round"])
    held = final(ds, name)
    return ds[name].where(~after, held).assign_attrs(ds[name].attrs)


def _statistics(values: xr.DataArray, drawn: Sequence[str]) -> xr.Dataset:
    if "trial" in values.dims and "trial" not in drawn:
        count = values.notnull().sum("trial")
        mean = values.mean("trial")
        std = (((values - mean) ** 2).sum("trial") / (count - 1).where(count > 1)) ** 0.5
    else:
        count, mean, std = values.notnull().astype(int), values, xr.full_like(values, np.nan)
    table = xr.Dataset({"mean": mean, "std": std, "trials": count})
    return table.transpose(*drawn).drop_vars("final_round", errors="ignore").compute()


def _along_coordinates(ds: xr.Dataset, drawn: Sequence[str], y: str) -> xr.Dataset:
    """Makes a coordinate that is to be drawn (of a zip axis) the dim it lies along."""
    for name in drawn:
        if name in ds[y].dims:
            continue
        if name in ds.coords and ds[name].ndim == 1 and ds[name].dims[0] in ds[y].dims:
            ds = ds.swap_dims({ds[name].dims[0]: name})
        else:
            raise unknown(name, f"a dim of {y}", name, [str(d) for d in ds[y].dims])
    return ds


def _only_drawn(values: xr.DataArray, drawn: Sequence[str]) -> xr.DataArray:
    """Without dims of one value that are not drawn; a longer one is the user's to settle."""
    for dim in values.dims:
        if dim in drawn or dim == "trial":
            continue
        if values.sizes[dim] > 1:
            first = shown(values[dim].values[0])
            raise UserError(
                f"{values.name} also depends on {dim} ({listed(values[dim])}); draw it with "
                f"--hue {dim} or --facet {dim}, or pick one with --sel {dim}={first}"
            )
        values = values.isel({dim: 0}, drop=True)
    return values


def _panel(ax: Axes, data: xr.Dataset, ds: xr.Dataset, hue: str | None) -> None:
    """One set of axes: a curve for each value of `hue`."""
    x, log = data.attrs["x"], data.attrs["y"] == "aggregation_nmse"
    dim = str(data["mean"].dims[-1])
    curves = [data.isel({hue: i}) for i in range(data.sizes[hue])] if hue else [data]
    for i, curve in enumerate(curves):
        name = shown(data[hue].values[i]) if hue else ""
        at = (curve["at"] if "at" in curve else curve[dim]).values
        if at.dtype.kind not in "fiu":
            _choices(ax, at, curve, i, len(curves), name)
        else:
            _line(ax, at, curve, i, name, log)
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if log:
        ax.set_yscale("log", nonpositive="clip")
    if x != "round" and x not in ds.data_vars and ds[x].dtype.kind in "fiu":
        _numeric_ticks(ax, np.unique(ds[x].values))


def _style(i: int) -> dict[str, Any]:
    """Colours come round after seven; the marker and the line are then other ones."""
    turn = i // len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[(i + turn) % len(MARKERS)],
        "markersize": 4.5,
    }


def _line(ax: Axes, at: np.ndarray, curve: xr.Dataset, i: int, name: str, log: bool) -> None:
    shown = np.isfinite(curve["mean"].values)
    at, mean, std = at[shown], curve["mean"].values[shown], curve["std"].values[shown]
    style = _style(i) | {"linestyle": LINES[(i + 2 * (i // len(COLOURS))) % len(LINES)]}
    # at most about ten markers a curve, shifted so that those of two curves do not coincide
    step = max(1, len(at) // 10)
    ax.plot(at, mean, label=name, linewidth=1.4, markevery=((i * step // 3) % step, step), **style)
    low = mean - std
    if log:
        low = np.maximum(low, 0.1 * mean)
    banded = np.isfinite(std)
    ax.fill_between(
        at, low, mean + std, where=banded, color=style["color"], alpha=0.18, linewidth=0
    )


def _choices(ax: Axes, at: np.ndarray, curve: xr.Dataset, i: int, curves: int, name: str) -> None:
    """Values over choices have no order: points with bars, side by side."""
    places = np.arange(len(at)) + 0.5 * ((i + 0.5) / curves - 0.5)
    std = np.nan_to_num(curve["std"].values)
    ax.errorbar(
        places, curve["mean"].values, std, label=name, linestyle="none", capsize=3, **_style(i)
    )
    names = [textwrap.fill(shown(value), LEGEND_WIDTH) for value in at]
    ax.set_xticks(np.arange(len(at)), names)
    ax.set_xlim(-0.5, len(at) - 0.5)
    if sum(len(shown(value)) for value in at) > 30:
        ax.tick_params(axis="x", rotation=25)


def _numeric_ticks(ax: Axes, values: np.ndarray) -> None:
    """A tick at each value where there are few; a log axis where they grow by a factor."""
    values = values[np.isfinite(values)]
    if len(values) > 2 and values[0] > 0:
        ratios = values[1:] / values[:-1]
        if ratios.min() > 1.5 and ratios.max() < 4 * ratios.min() and values[-1] > 30 * values[0]:
            ax.set_xscale("log")
    if len(values) <= 8:
        ax.set_xticks(values, [shown(value) for value in values])
        ax.set_xticks([], minor=True)


def _diverged(ds: xr.Dataset, sel: Selection | None) -> str:
    """A band over the trials that survived must say how many did not."""
    if "diverged_round" not in ds:
        return ""
    picked = ds["diverged_round"].to_dataset()
    for name, value in (sel or {}).items():
        if name in picked.coords and picked[name].ndim == 1:
            picked = pick(picked, name, value)
    lost = int(picked["diverged_round"].notnull().sum())
    plural = "trial" if lost == 1 else "trials"
    return f"without {lost} {plural} from the round of divergence on" if lost else ""


def main_variable(ds: xr.Dataset) -> str:
    """What to draw of a result if nothing is said: the global model's accuracy, where it has
    one."""
    for name in (
        "test_accuracy",
        "personal_own_test_accuracy",
        "personal_test_accuracy",
        "local_test_accuracy",
    ):
        if name in ds and bool(ds[name].notnull().any()):
            return name
    return str(next(iter(ds.data_vars)))


def _label(ds: xr.Dataset, name: str) -> str:
    units = ds[name].attrs.get("units", "1")
    label = long_name(ds, name)
    return label if units == "1" else f"{label} [{units}]"
