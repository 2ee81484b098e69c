"""Draw distributions: what share of the devices, or of the trials, has at most so much."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from otafl.core.errors import UserError
from otafl.losses.metrics import list_variables
from otafl.plots import quantities
from otafl.plots.kinds import NO_CELLS, Recipe
from otafl.plots.layout import draw_panels, style_axes
from otafl.plots.style import (
    draw_banded_line,
    spans_decades,
    split_parts,
)

PERSONAL = list_variables(
    "device_personal_own_test",
    "device_tuned_own_test",
    "device_own_test",
    "device_local_own_test",
    "device_personal_test",
    "device_tuned_test",
    "device_local_test",
)
"""What is drawn if nothing is said: the first that the result has, else joules."""
JOULES = ("device_energy_j", "tx_energy_j")


def cdf_data(
    ds: xr.Dataset,
    x: str | None = None,
    hue: str | None = None,
    facet: str | None = None,
    sel: quantities.Selection | None = None,
) -> xr.Dataset:
    """Compute what is drawn as distribution functions, one for each hue and facet.

    A variable with a value a device is distributed over devices, of all trials together; any other
    over trials. Devices that a point does not have are NaN and count nowhere; joules are summed
    over the causes.

    Parameters
    ----------
    x : a variable; None: the main one that has a value a device.
    hue, facet : dims whose values are curves of a colour, and panels.
    sel : dim -> the value of it that is drawn.

    Returns
    -------
    With dims ([facet], [hue], step), a step of the function each. value: the finite values of all
    devices of all trials at the end of the trials, each once, in order; NaN beyond their number.
    share: of all these devices, that which has at most `value`. std: standard deviation (n - 1) of
    the trials' own shares there; NaN for one trial. devices, trials: how many are in `share`. Over
    trials, likewise of these, without std and devices.

    Raises
    ------
    UserError : for unknown names, and for a dim that is neither drawn nor picked.
    """
    x = (
        x
        or quantities.find_first_known(ds, (*PERSONAL, *JOULES))
        or quantities.find_main_variable(ds)
    )
    quantities.check_variable(ds, "--x", x)
    over = "device" if "device" in ds[x].dims else "trial"
    ds = quantities.select_values(ds, sel, hue=hue, facet=facet)
    drawn = [name for name in (facet, hue) if name]
    if over in drawn or over not in ds[x].dims:
        raise UserError(
            f"--x {x}: its distribution is over {over}s, and needs all of them; pick none with "
            "--sel, --hue or --facet"
        )
    # joules of devices are not summed over them
    ds, values = quantities.select_quantity(ds, x, [*drawn, over])
    trials = over == "device" and "trial" in values.dims and "trial" not in drawn
    pool = values if trials else values.expand_dims(pooled=[0])
    pool = pool.transpose(*drawn, "trial" if trials else "pooled", over)
    table = _compute_steps(pool.compute(), over)
    table["share"].attrs["label"] = f"share of {over}s"
    axes = {"x": values.rename(x), "y": table["share"]}
    table.attrs = quantities.build_attributes("cdf", ds, axes, x=x, y="share", hue=hue, facet=facet)
    said = {"mark": "shading" if trials else "", "center": "trials' shares"}
    return table.assign_attrs(said, log_x=int(spans_decades(table["value"].values)))


def draw_cdf(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `cdf_data`: a staircase for each hue, and the band of its trials."""
    return draw_panels(data, title, _draw_panel)


def compute_distribution(values: np.ndarray) -> np.ndarray:
    """Compute value, share and std, as in `cdf_data`, of [trials, devices]: [3, trials * devices].

    NaN where there is no device, and beyond the last step. Infinite values count as devices, but
    have no step.
    """
    own = [row[~np.isnan(row)] for row in values]
    own = [row for row in own if row.size]
    pool = np.sort(np.concatenate(own)) if own else np.empty(0)
    value = np.unique(pool[np.isfinite(pool)])
    out = np.full((3, values.size), np.nan)
    out[:2, : value.size] = value, np.searchsorted(pool, value, "right") / max(1, pool.size)
    if len(own) > 1:
        each = [np.searchsorted(np.sort(row), value, "right") / row.size for row in own]
        out[2, : value.size] = np.std(each, 0, ddof=1)
    return out


def _compute_steps(pool: xr.DataArray, over: str) -> xr.Dataset:
    """Compute the distributions of a variable.

    Its dims are (..., trials, device), or (..., pooled, trial) for a distribution over trials.
    """
    across = [str(dim) for dim in pool.dims[-2:]]
    pool = pool.drop_vars("final_round", errors="ignore")
    found = xr.apply_ufunc(
        compute_distribution,
        pool,
        input_core_dims=[across],
        output_core_dims=[["part", "step"]],
        vectorize=True,
    )
    steps = found.assign_coords(part=["value", "share", "std"]).to_dataset("part")
    steps = steps.dropna("step", how="all", subset=["value"])
    there = pool.notnull()
    if over == "device":
        steps = steps.assign(devices=there.sum(across), trials=there.any(over).sum(across[0]))
    else:
        steps = steps.assign(trials=there.sum(across))
    # the coordinates in their order, which is that of a table's columns
    known = pool.isel(dict.fromkeys(across, 0), drop=True).coords
    return xr.Dataset(coords=dict(known)).assign(steps)


def _draw_panel(ax: Axes, data: xr.Dataset) -> None:
    for i, (name, curve) in enumerate(split_parts(data, "hue")):
        value, share, std = _build_staircase(curve)
        ends = (np.clip(share + way * std, 0, 1) for way in (-1, 1))
        draw_banded_line(ax, i, name, (value, share, *ends), markers=8, step="post")
    style_axes(ax, x=data.attrs["log_x"])
    ax.set_ylim(0, 1.03)


def _build_staircase(curve: xr.Dataset) -> tuple[np.ndarray, ...]:
    """Return value, share and std of one curve, with the foot of the first step in front."""
    seen = np.isfinite(curve["value"].values)
    value, share, std = (curve[name].values[seen] for name in ("value", "share", "std"))
    if not value.size:
        return value, share, std
    foot = 0.0 * std[:1]  # NaN where there is no band
    return np.r_[value[:1], value], np.r_[0.0, share], np.r_[foot, std]


RECIPE = Recipe(
    cdf_data,
    draw_cdf,
    {"value": "{x}", "share": "share", "std": "share_std"},
    "{x}_cdf",
    NO_CELLS | {"y": "upwards is the share of devices; give the variable with --x"},
)
