"""Draw how a scenario's training samples fall to its devices: classes by device.

Up to `BARS` classes are bars whose heights are the devices' sizes; more are a map of counts.

References
----------
Okabe, Ito 2008, "Color Universal Design".
Tol 2021, "Colour Schemes", SRON technical note.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from otafl.core.rng import Streams
from otafl.data.device_splits import partition_samples
from otafl.data.loading import load_cached
from otafl.plots import quantities
from otafl.plots.kinds import Recipe
from otafl.plots.layout import add_legend, count_columns, finish, make_panels, style_axes
from otafl.plots.scenario_panels import Panels, open_scenario, select_panels
from otafl.plots.style import format_split
from otafl.scenario import Scenario

COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#F0E442", "#882255", "#56B4E9"),
    *("#D55E00", "#CC79A7", "#332288", "#999933", "#999999", "#000000"),
)
"""Those of a bar's neighbours differ in lightness too."""
BARS = len(COLOURS)
"""Largest number of classes that colours distinguish."""
GAPS = 120
"""More devices than this have no room between their bars."""
EACH, WIDEST = 0.08, 9.0
"""Inches of a device, and of a panel at most."""


def partition_data(
    scenario: Scenario, facet: str | None = None, sel: quantities.Selection | None = None
) -> xr.Dataset:
    """Count the training samples of each class that each device gets.

    Parameters
    ----------
    scenario : as `load_scenario` returns it; its data set is read and partitioned as in a run.
    facet : an axis of the sweep whose values are panels; None: the first that changes the
        partition.
    sel : axis -> the value of it that is drawn; trial is 0 if it is not given.

    Returns
    -------
    With dims ([facet], device, class): samples; NaN for devices that a point does not have.

    Raises
    ------
    UserError : for data that cannot be had, unknown names, and for an axis that is neither drawn
        nor picked.
    """
    shown = select_panels(scenario, "partition", _make_key, facet, sel)
    counts = [_count_classes(one, shown.trial) for one in shown.scenarios]
    return _build_table(counts, shown)


def _make_key(scenario: Scenario) -> str:
    return f"{scenario.data.model_dump_json()} {scenario.devices.count} {scenario.seed}"


def _count_classes(scenario: Scenario, trial: int) -> np.ndarray:
    """Return how many training samples of each class each device has, [K, classes] int64.

    Samples whose labels are no classes count as those of one, [K, 1].
    """
    source, devices = scenario.data, scenario.devices.count
    data = load_cached(source)
    (held,) = partition_samples(source, data, devices, Streams([scenario.seed], [trial]))
    if data.labels != "classes":
        return held.train.counts[:, None]
    labels = source.partition.relabel(data.y_train, devices)[held.train.sample_index]
    device = np.repeat(np.arange(devices), held.train.counts)
    flat = np.bincount(device * data.classes + labels, minlength=devices * data.classes)
    return flat.reshape(devices, data.classes)


def _build_table(counts: list[np.ndarray], shown: Panels) -> xr.Dataset:
    """Label the counts of the panels, and say what is drawn."""
    facet = shown.facet
    most = np.max([one.shape for one in counts], axis=0)
    whole = np.full((len(counts), *most), np.nan)
    for place, one in enumerate(counts):
        whole[place, : one.shape[0], : one.shape[1]] = one
    dims = (facet or "panel", "device", "class")
    said = {"units": "1", "long_name": "training samples"}
    places = {"device": np.arange(most[0]), "class": np.arange(most[1])}
    samples = xr.DataArray(whole, {**shown.coords, **places}, dims, "samples", said)
    samples = samples if facet else samples.isel(panel=0)
    names = {"x": "device", "y": "samples", "hue": "class", "facet": facet}
    axes = {"x": samples["device"], "y": samples}
    table = samples.to_dataset()
    table.attrs = quantities.build_attributes("partition", shown.table, axes, **names)
    return table.assign_attrs(note=_format_sizes(samples))


def _format_sizes(samples: xr.DataArray) -> str:
    """Format the numbers of samples of the devices."""
    held = samples.sum("class", min_count=1).values
    held = held[np.isfinite(held)]
    return (
        f"samples of a device: {held.min():.0f} to {held.max():.0f}, {held.mean():.0f} in the mean"
    )


def draw_partition(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `partition_data`."""
    facet, devices = data.attrs["facet"], data.sizes["device"]
    columns = count_columns(data.sizes[facet]) if facet else 1
    size = (min(max(EACH * devices, 2.8 if facet else 4.5), WIDEST / columns), 2.7)
    if data.sizes["class"] > BARS:
        data = data.assign_attrs(y_label="class")
    figure, shows = make_panels(data, size)
    if data.sizes["class"] <= BARS:
        for ax, part in shows:
            _draw_bars(ax, part["samples"].dropna("device", how="all"))
        handles, texts = shows[0][0].get_legend_handles_labels()
        add_legend(figure, data, handles[::-1], texts[::-1], "class")
    else:
        norm = Normalize(0, float(data["samples"].max()))
        meshes = [
            _draw_map(ax, part["samples"].dropna("device", how="all"), norm) for ax, part in shows
        ]
        bar = figure.colorbar(meshes[0], ax=[ax for ax, _ in shows], pad=0.02, aspect=25)
        bar.set_label("training samples")
    for ax, _ in shows:
        ax.set_xlim(-0.6, devices - 0.4)
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    finish(figure, data, title, size)
    return figure


def _draw_bars(ax: Axes, samples: xr.DataArray) -> None:
    """Draw a bar for each device, its classes on top of each other, class 0 below."""
    counts = samples.transpose("device", "class").values
    tops = np.cumsum(counts, axis=1)
    half = 0.44 if len(counts) <= GAPS else 0.5
    left, right = (samples["device"].values + side for side in (-half, half))
    style: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.3 if len(counts) <= GAPS else 0.0}
    for number in range(counts.shape[1]):
        low, high = tops[:, number] - counts[:, number], tops[:, number]
        corners = np.stack([left, low, left, high, right, high, right, low], 1).reshape(-1, 4, 2)
        there = corners[counts[:, number] > 0]
        colour = COLOURS[number]
        ax.add_collection(PolyCollection(list(there), facecolor=colour, label=str(number), **style))
    ax.set_ylim(0, 1.04 * max(float(tops.max()), *ax.get_ylim()[1:]))
    style_axes(ax)


def _draw_map(ax: Axes, samples: xr.DataArray, norm: Normalize) -> QuadMesh:
    """Draw a cell for each device and class, class 0 below."""
    counts = samples.transpose("class", "device").values
    edges = [np.arange(n + 1) - 0.5 for n in (counts.shape[1], counts.shape[0])]
    ax.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    return ax.pcolormesh(*edges, counts, cmap="Blues", norm=norm)


def describe(data: xr.Dataset) -> str:
    """Describe the figure."""
    said = f"Training samples of {data.sizes['device']} devices by class{format_split(data)}."
    return f"{said} {data.attrs['note'].capitalize()}."


_NO = "a partition has devices across and samples upwards; use --facet or --sel"
RECIPE = Recipe(
    partition_data,
    draw_partition,
    describe,
    {"samples": "samples"},
    "partition",
    {"x": _NO, "y": _NO, "z": _NO, "hue": "the colours are the classes; use --facet {}"},
    open_scenario,
)
