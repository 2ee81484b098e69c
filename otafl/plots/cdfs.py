"""Distributions over devices: what share of the devices has at most so much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from otafl.analysis.figures import shown
from otafl.core.errors import UserError
from otafl.plots.layout import legend, panel_data, panels, plain_axes, settle
from otafl.plots.quantities import (
    Selection,
    along_coordinates,
    at_the_end,
    check_distinct,
    check_variable,
    labels,
    lost_note,
    only_drawn,
    picked,
)
from otafl.plots.style import label, line, look, spans_decades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERSONAL = (
    "device_personal_own_test_accuracy",
    "device_tuned_own_test_accuracy",
    "device_own_test_accuracy",
    "device_local_own_test_accuracy",
    "device_personal_test_accuracy",
    "device_tuned_test_accuracy",
    "device_local_test_accuracy",
)
"""What is drawn if nothing is said: the first that the result has, else joules."""


def cdf_data(
    ds: xr.Dataset,
    x: str,
    hue: str | None = None,
    facet: str | None = None,
    sel: Selection | None = None,
) -> xr.Dataset:
    """What is drawn, with dims ([facet], [hue], step): the distribution function's steps.

    value: the finite values of all devices of all trials at the end of the trials, each once, in
    order; NaN beyond their number. share: of all these devices, that which has at most `value`.
    std: standard deviation (n - 1) of the trials' own shares there; NaN for one trial. devices,
    trials: how many are in `share`. Devices that a point does not have are NaN and count nowhere;
    joules are summed over the causes. Raises UserError for unknown names, for a variable that is
    not one a device, and for a dim that is neither drawn nor picked.
    """
    check_variable(ds, "--x", x)
    if "device" not in ds[x].dims:
        able = [str(name) for name, one in ds.data_vars.items() if "device" in one.dims]
        raise UserError(
            f"--x {x}: is not one value a device; "
            + (f"take one of {', '.join(able)}" if able else "this result has no such variable")
        )
    check_distinct(hue=hue, facet=facet)
    ds = picked(ds, sel)
    drawn = [name for name in (facet, hue) if name]
    note = lost_note(ds)
    kept = [*drawn, "device"]
    if "device" not in ds[x].dims:
        raise UserError("--sel device picks one; a distribution needs all devices")
    ds = along_coordinates(ds.assign({x: at_the_end(ds, x, kept)}), drawn, x)
    values = only_drawn(ds[x], kept)
    trials = "trial" in values.dims and "trial" not in drawn
    pool = values if trials else values.expand_dims(pooled=[0])
    pool = pool.transpose(*drawn, "trial" if trials else "pooled", "device").compute()
    table = _steps(pool, drawn)
    table.attrs = {"kind": "cdf", "x": x, "y": "share", "hue": hue or "", "facet": facet or ""}
    table.attrs |= labels(x=values.rename(x)) | {"y_label": "share of devices", "note": note}
    return table.assign_attrs(log_x=int(spans_decades(table["value"].values)))


def main_device_variable(ds: xr.Dataset) -> str:
    """What to draw if nothing is said. Raises UserError where nothing is one value a device."""
    for name in (*PERSONAL, "device_energy_j", "tx_energy_j"):
        if name in ds and bool(ds[name].notnull().any()):
            return name
    raise UserError("--kind cdf: this result has no variable that is one value a device")


def distribution(values: np.ndarray) -> dict[str, np.ndarray]:
    """Of the devices [trials, devices], NaN where there is none: value, share and std [n]
    as in `cdf_data`. Infinite values count as devices, but have no step."""
    own = [row[~np.isnan(row)] for row in values]
    own = [row for row in own if row.size]
    pool = np.sort(np.concatenate(own)) if own else np.empty(0)
    value = np.unique(pool[np.isfinite(pool)])
    share = np.searchsorted(pool, value, "right") / max(1, pool.size)
    each = np.array([np.searchsorted(np.sort(row), value, "right") / row.size for row in own])
    std = each.std(0, ddof=1) if len(own) > 1 else np.full(value.size, np.nan)
    return {"value": value, "share": share, "std": std}


def draw_cdf(data: xr.Dataset, title: str = "") -> Figure:
    """A figure of `cdf_data`: a staircase for each value of the hue, and the band of its trials."""
    figure, axes = panels(data)
    for i, ax in enumerate(axes):
        _panel(ax, panel_data(data, i))
    hue = data.attrs["hue"]
    if hue:
        handles, texts = axes[0].get_legend_handles_labels()
        legend(figure, handles, texts, label(data[hue], hue))
    settle(figure, "\n".join((title, data.attrs["note"])))
    return figure


def _steps(pool: xr.DataArray, drawn: list[str]) -> xr.Dataset:
    shape = pool.shape[: len(drawn)]
    rows = pool.values.reshape(-1, *pool.shape[len(drawn) :])
    found = [distribution(row) for row in rows]
    longest = max((one["value"].size for one in found), default=0)
    data = {}
    for name in ("value", "share", "std"):
        padded = np.full((len(found), longest), np.nan)
        for i, one in enumerate(found):
            padded[i, : one[name].size] = one[name]
        data[name] = ([*drawn, "step"], padded.reshape(*shape, longest))
    there = ~np.isnan(rows)
    data["devices"] = (drawn, there.sum((1, 2)).reshape(shape))
    data["trials"] = (drawn, there.any(2).sum(1).reshape(shape))
    known = pool.drop_vars(["final_round", "trial", "pooled", "device"], errors="ignore").coords
    return xr.Dataset(data, {name: one for name, one in known.items() if {*one.dims} <= {*drawn}})


def _panel(ax: Axes, data: xr.Dataset) -> None:
    hue = data.attrs["hue"]
    curves = [data.isel({hue: i}) for i in range(data.sizes[hue])] if hue else [data]
    for i, curve in enumerate(curves):
        value, share, std = staircase(curve)
        name = shown(data[hue].values[i]) if hue else ""
        style = look(i) | line(i) | {"drawstyle": "steps-post"}
        step = max(1, len(value) // 8)
        ax.plot(value, share, label=name, markevery=((i * step // 3) % step, step), **style)
        low, high = np.clip(share - std, 0, 1), np.clip(share + std, 0, 1)
        look_of = {"color": style["color"], "alpha": 0.18, "linewidth": 0}
        ax.fill_between(value, low, high, where=np.isfinite(std), step="post", **look_of)
    plain_axes(ax)
    if data.attrs["log_x"]:
        ax.set_xscale("log")
    ax.set_ylim(0, 1.03)


def staircase(curve: xr.Dataset) -> tuple[np.ndarray, ...]:
    """value, share and std of one curve, with the foot of the first step in front."""
    seen = np.isfinite(curve["value"].values)
    value, share, std = (curve[name].values[seen] for name in ("value", "share", "std"))
    if not value.size:
        return value, share, std
    foot = 0.0 * std[:1]  # NaN where there is no band
    return np.r_[value[:1], value], np.r_[0.0, share], np.r_[foot, std]
