"""Draw distributions: what share of the devices, or of the trials, has at most so much."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from otafl.analysis.points import find_first_known, find_main_variable
from otafl.core.errors import UserError
from otafl.losses.metrics import list_variables
from otafl.plots import quantities
from otafl.plots.kinds import FigureRecipe
from otafl.plots.layout import (
    LARGEST,
    draw_panels,
    get_style,
    spans_decades,
    split_parts,
    style_axes,
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
    share: of all these devices, that which has at most `value`. devices, trials: how many are in
    `share`. Over trials, likewise of these, without devices.

    Raises
    ------
    UserError : for unknown names, and for a dim that is neither drawn nor picked.
    """
    x = x or find_first_known(ds, (*PERSONAL, *JOULES)) or find_main_variable(ds)
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
    values = values.rename("value").drop_vars("final_round", errors="ignore")
    across = [dim for dim in values.dims if dim not in drawn]
    steps = xr.apply_ufunc(
        compute_distribution,
        values.compute(),
        input_core_dims=[across],
        output_core_dims=[["part", "step"]],
        vectorize=True,
    )
    table = steps.assign_coords(part=["value", "share"]).to_dataset("part")
    table = table.dropna("step", how="all", subset=["value"]).transpose(*drawn, "step")
    there = values.notnull()
    if over == "device":
        table["devices"] = there.sum(across)
    trials = there.any(over) if over == "device" else there
    table["trials"] = trials.sum([dim for dim in across if dim in trials.dims])
    table["share"].attrs["label"] = f"share of {over}s"
    axes = {"x": values.rename(x), "y": table["share"]}
    table.attrs = quantities.build_attributes("cdf", ds, axes, x=x, y="share", hue=hue, facet=facet)
    return table.assign_attrs(log_x=int(spans_decades(table["value"].values)))


def draw_cdf(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `cdf_data`: a staircase for each hue."""
    return draw_panels(data, title, _draw_panel)


def compute_distribution(values: np.ndarray) -> np.ndarray:
    """Compute value and share, as in `cdf_data`, of values of any shape: [2, size].

    NaN where there is no device, and beyond the last step. Infinite values count as devices, but
    have no step.
    """
    pool = np.sort(values[~np.isnan(values)])
    value = np.unique(pool[np.isfinite(pool)])
    out = np.full((2, values.size), np.nan)
    out[:, : value.size] = value, np.searchsorted(pool, value, "right") / max(1, pool.size)
    return out


def _draw_panel(ax: Axes, data: xr.Dataset) -> None:
    for i, (name, curve) in enumerate(split_parts(data, "hue")):
        seen = np.isfinite(curve["value"].values)
        value, share = (curve[name].values[seen] for name in ("value", "share"))
        # with the foot of the first step in front
        value, share = np.r_[value[:1], value], np.r_[0.0 * share[:1], share]
        style = get_style(i, len(value)) | {"drawstyle": "steps-post"}
        ax.plot(np.where(abs(value) < LARGEST, value, np.nan), share, label=name, **style)
    style_axes(ax, x=data.attrs["log_x"])
    ax.set_ylim(0, 1.03)


RECIPE = FigureRecipe(
    cdf_data,
    draw_cdf,
    {"value": "{x}", "share": "share"},
    "{x}_cdf",
    ("x", "hue", "facet"),
)
