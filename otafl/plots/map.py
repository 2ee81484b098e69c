"""Map of a scenario's devices and its base station, seen from above, with the quality of the links.

A device has the colour of its mean SNR at full power over the fading, at the trial's first round;
one without a path is a cross. With a partition `by_place`, the colour is instead that of the class
of most of its training samples. A traced place has its roofs in grey, and between them the SNR
that a device would have there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from otafl import topology
from otafl.core.errors import UserError
from otafl.plots import quantities
from otafl.plots.kinds import FigureRecipe
from otafl.plots.layout import add_legend, finish, make_panels
from otafl.plots.partition import COLOURS as CLASS_COLOURS
from otafl.plots.partition import partition_data
from otafl.plots.scenario_panels import Panels, open_scenario, select_panels
from otafl.scenario import Scenario

COLOURS = "cividis"
SPAN_DB = 80.0
"""dB below the highest SNR from which on colours are the darkest."""
SIDE = {True: 3.0, False: 4.0}
"""Inches of a panel, of several or alone."""
ROOF_M = 0.5
"""Height from which on there is a roof."""
PATH = ("path_east_m", "path_north_m")
MAIN = "main_class"
LABEL = "SNR at full power [dB]"
MARGIN = 1.05


def map_data(
    scenario: Scenario, facet: str | None = None, sel: quantities.Selection | None = None
) -> xr.Dataset:
    """Compute where devices are and what SNR they have.

    Parameters
    ----------
    scenario : as `load_scenario` returns it.
    facet : an axis of the sweep whose values are panels.
    sel : axis -> the value of it that is drawn; else its first value, which the note says.

    Returns
    -------
    With dims ([facet], device): east_m and north_m from the (first) base station, snr_db, -inf
    without a path, NaN for devices that a point does not have; base_east_m and base_north_m (base);
    of devices on a trace path_east_m and path_north_m (device, position); with a partition
    `by_place` main_class, the class of most samples of a device; of a traced place
    coverage_db and roof_m (row, column) at row_m and column_m.

    Raises
    ------
    UserError : for a channel without places, and for unknown names.
    """
    shown = select_panels(scenario, "map", facet, sel)
    made = [_build_panel(one, shown.trial) for one in shown.scenarios]
    table = _build_table(made, shown)
    if all(one.data.partition.name == "by_place" for one in shown.scenarios):
        samples = partition_data(scenario, facet, sel)["samples"].fillna(0)
        if samples.sizes["device"] == table.sizes["device"]:
            table[MAIN] = samples.argmax("class").drop_vars("class", errors="ignore")
    return table


def _build_panel(scenario: Scenario, trial: int) -> xr.Dataset:
    """Return what a panel shows."""
    rows = topology.Rows.build([scenario], [trial], torch.device("cpu"), torch.float32)
    servers, budget, channel = topology.build_links(rows)
    places = servers.get_positions(channel, 0)
    if places is None:
        raise UserError(
            f"channel '{scenario.channel.name}' with topology '{scenario.topology.name}' has no "
            "places, so there is no map of it; those of umi, uma, rma, trace have"
        )
    count = len(places.device_m)
    power = budget.budget.flatten()[:count].double()
    gain = channel.get_large_scale_state(0).gain.double()
    # servers that have the same devices: the strongest
    gain = gain.amax(0) if gain.numel() > count else gain.flatten()
    east, north = (places.device_m - places.base_m[0]).T
    base_east, base_north = (places.base_m - places.base_m[0]).T
    found: dict[str, Any] = {
        "east_m": ("device", east),
        "north_m": ("device", north),
        "snr_db": ("device", (10.0 * (power * gain).log10()).cpu().numpy()),
        "base_east_m": ("base", base_east),
        "base_north_m": ("base", base_north),
    }
    if places.path_m is not None:
        path = places.path_m - places.base_m[0]
        for way, name in enumerate(PATH):
            found[name] = (("device", "position"), path[..., way])
    note = ""
    if places.ground is not None:
        ground, (x, y) = places.ground, places.base_m[0]
        unit_db = float(10.0 * (power * budget.gain.flatten()[:count]).mean().log10())
        found["coverage_db"] = (("row", "column"), ground.coverage_db + unit_db)
        found["roof_m"] = (("row", "column"), ground.roof_m)
        found["column_m"], found["row_m"] = ("column", ground.x_m - x), ("row", ground.y_m - y)
        note = ground.attribution.partition(";")[0]
    table = xr.Dataset(found, attrs={"attribution": note})
    return table.assign_coords({str(dim): np.arange(size) for dim, size in table.sizes.items()})


def _build_table(panels: list[xr.Dataset], shown: Panels) -> xr.Dataset:
    """Put the panels together, and say what is drawn."""
    table = panels[0]
    if shown.facet:
        table = xr.concat(panels, shown.facet, join="outer", data_vars="all")
        table = table.assign_coords(shown.coords)
    for way in ("east", "north"):
        table[f"{way}_m"].attrs = {"units": "m", "long_name": f"{way} of the base station"}
    snr = table["snr_db"]
    snr.attrs = {"units": "dB", "long_name": "SNR at full power"}
    lost = int(np.isneginf(snr.values).sum())
    attribution = "; ".join(dict.fromkeys(one.attrs["attribution"] for one in panels))
    plural = "device has" if lost == 1 else "devices have"
    notes = [shown.note, f"{lost} {plural} no path" if lost else "", attribution]
    names = {"x": "east_m", "y": "north_m", "hue": None, "facet": shown.facet}
    axes = {"x": table["east_m"], "y": table["north_m"], "z": snr}
    table.attrs = quantities.build_attributes("map", shown.table, axes, **names)
    return table.assign_attrs(note="; ".join(one for one in notes if one))


def draw_map(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `map_data`: one colour bar for all panels, of `SPAN_DB` at most."""
    size = (SIDE[bool(data.attrs["facet"])],) * 2
    figure, shows = make_panels(data, size)
    drawn = [data[name].values.ravel() for name in ("snr_db", "coverage_db") if name in data]
    power = np.concatenate(drawn)
    power = power[np.isfinite(power)] if np.isfinite(power).any() else np.zeros(1)
    norm = Normalize(max(power.min(), power.max() - SPAN_DB), power.max())
    places = ("east_m", "north_m", "base_east_m", "base_north_m")
    shown = (name for name in (*places, *PATH) if name in data)
    reach = MARGIN * max(float(abs(data[name]).max()) for name in shown) or 1.0
    marks: dict[str, Any] = {}
    shades: Any = CLASS_COLOURS
    if MAIN in data and data[MAIN].max() >= len(shades):
        shades = colormaps["turbo"](np.linspace(0.0, 1.0, int(data[MAIN].max()) + 1))
    for ax, part in shows:
        _draw_panel(ax, part, norm, shades)
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
        handles, names = ax.get_legend_handles_labels()
        marks |= dict(zip(names, handles, strict=True))
    if MAIN not in data or "coverage_db" in data:
        style: dict[str, Any] = {"pad": 0.02, "aspect": 25, "extend": "min"}
        bar = figure.colorbar(ScalarMappable(norm, COLOURS), ax=[ax for ax, _ in shows], **style)
        bar.set_label(LABEL)
    add_legend(figure, data, [*marks.values()], [*marks], "")
    finish(figure, data, title, size)
    return figure


def _draw_panel(ax: Axes, part: xr.Dataset, norm: Normalize, shades: Any) -> None:
    """Draw a place: what is there, the devices, and the base station on top."""
    if "coverage_db" in part and part["column_m"].notnull().any():
        ground = part.dropna("row", subset=["row_m"]).dropna("column", subset=["column_m"])
        at = ground["column_m"].values, ground["row_m"].values
        style: dict[str, Any] = {"shading": "nearest", "rasterized": True}
        ax.pcolormesh(*at, ground["coverage_db"].values, norm=norm, cmap=COLOURS, **style)
        roofs = np.where(ground["roof_m"].values >= ROOF_M, 1.0, np.nan)
        ax.pcolormesh(*at, roofs, cmap=ListedColormap(["0.82"]), **style)
    if PATH[0] in part:
        ax.plot(*(part[name].values.T for name in PATH), color="0.6", linewidth=0.8, zorder=2)
    known = part["snr_db"].notnull().values
    east, north, snr = (part[name].values[known] for name in ("east_m", "north_m", "snr_db"))
    is_finite = np.isfinite(snr)
    edge: dict[str, Any] = {"edgecolors": "black", "linewidths": 0.6, "zorder": 3}
    if MAIN in part:
        main = part[MAIN].values[known]
        for number in np.unique(main):
            at = east[is_finite & (main == number)], north[is_finite & (main == number)]
            ax.scatter(*at, color=shades[number], label=f"class {number}", s=26, **edge)
    else:
        dots: dict[str, Any] = {"c": snr[is_finite], "norm": norm, "cmap": COLOURS, "s": 26}
        ax.scatter(east[is_finite], north[is_finite], label="device", **dots, **edge)
    if not is_finite.all():
        cross: dict[str, Any] = {"marker": "x", "c": "#D55E00", "s": 26, "linewidths": 1.2}
        label = "device without a path"
        ax.scatter(east[~is_finite], north[~is_finite], label=label, zorder=3, **cross)
    base = part["base_east_m"].values, part["base_north_m"].values
    ax.scatter(*base, label="base station", marker="^", c="#D55E00", s=70, **edge)


RECIPE = FigureRecipe(
    map_data,
    draw_map,
    {"east_m": "east_m", "north_m": "north_m", "snr_db": "snr_db"},
    "map",
    ("facet",),
    open_scenario,
)
