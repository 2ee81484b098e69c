"""Draw how a scenario's training samples fall to its devices: classes by device.

Each device is a bar, whose height is the number of its samples, and its classes lie on each other.

References
----------
Okabe, Ito 2008, "Color Universal Design".
Tol 2021, "Colour Schemes", SRON technical note.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from otafl import topology
from otafl.data.device_splits import partition_samples
from otafl.data.loading import load_cached
from otafl.plots import quantities
from otafl.plots.kinds import FigureRecipe
from otafl.plots.layout import add_legend, count_columns, finish, make_panels, style_axes
from otafl.plots.scenario_panels import Panels, open_scenario, select_panels
from otafl.scenario import Scenario

COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#F0E442", "#882255", "#56B4E9"),
    *("#D55E00", "#CC79A7", "#332288", "#999933", "#999999", "#000000"),
)
"""Those of a bar's neighbours differ in lightness too; more classes have shades."""
EACH, WIDEST = 0.08, 9.0
"""Inches of a device, and of a panel at most."""


def partition_data(
    scenario: Scenario, facet: str | None = None, sel: quantities.Selection | None = None
) -> xr.Dataset:
    """Count the training samples of each class that each device gets.

    Parameters
    ----------
    scenario : as `load_scenario` returns it; its data set is read and partitioned as in a run.
    facet : an axis of the sweep whose values are panels.
    sel : axis -> the value of it that is drawn; else its first value, which the note says.

    Returns
    -------
    With dims ([facet], device, class): samples; NaN for devices that a point does not have.

    Raises
    ------
    UserError : for data that cannot be had, and for unknown names.
    """
    shown = select_panels(scenario, "partition", facet, sel)
    counts = [_count_classes(one, shown.trial) for one in shown.scenarios]
    return _build_table(counts, shown)


def _count_classes(scenario: Scenario, trial: int) -> np.ndarray:
    """Return how many training samples of each class each device has, [K, classes] int64.

    Samples whose labels are no classes count as those of one, [K, 1].
    """
    source, devices = scenario.data, scenario.devices.count
    data = load_cached(source)
    rows = topology.Rows.build([scenario], [trial], torch.device("cpu"), torch.float32)
    places = topology.locate_devices(rows)
    (held,) = partition_samples(source, data, devices, rows.trials, places)
    if data.labels != "classes":
        return held.train.counts[:, None]
    labels = data.y_train[held.train.sample_index]
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
    held = samples.sum("class", min_count=1)
    sizes = f"{held.min():.0f} to {held.max():.0f}, {held.mean():.0f} in the mean"
    notes = shown.note, f"samples of a device: {sizes}"
    return table.assign_attrs(note="; ".join(filter(None, notes)))


def draw_partition(data: xr.Dataset, title: str = "") -> Figure:
    """Draw a figure of `partition_data`."""
    facet, devices, classes = data.attrs["facet"], data.sizes["device"], data.sizes["class"]
    columns = count_columns(data.sizes[facet]) if facet else 1
    size = (min(max(EACH * devices, 2.8 if facet else 4.5), WIDEST / columns), 2.7)
    figure, shows = make_panels(data, size)
    colours = COLOURS if classes <= len(COLOURS) else colormaps["turbo"](np.linspace(0, 1, classes))
    for ax, part in shows:
        counts = part["samples"].dropna("device", how="all").transpose("class", "device").values
        # a step from half a device before each to half a device after it
        edges = np.arange(counts.shape[1] + 1) - 0.5
        tops = np.concatenate([counts, counts[:, -1:]], 1)
        names = [str(label) for label in part["class"].values]
        ax.stackplot(edges, tops, step="post", labels=names, colors=colours, linewidth=0)
        style_axes(ax)
        ax.set_xlim(-0.6, devices - 0.4)
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    handles, texts = shows[0][0].get_legend_handles_labels()
    add_legend(figure, data, handles[::-1], texts[::-1], "class")
    finish(figure, data, title, size)
    return figure


RECIPE = FigureRecipe(
    partition_data,
    draw_partition,
    {"samples": "samples"},
    "partition",
    ("facet",),
    open_scenario,
)
