"""Give each power policy the same colour, marker and line in every figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

PEAK_TCI = "tci(constraint=peak)"
POLICIES = {
    "genie": ("#000000", "o", "-"),
    "cao_static": ("#0072B2", "s", "-"),
    "cao_average": ("#009E73", "D", "--"),
    "smcv": ("#56B4E9", "^", ":"),
    "full": ("#E69F00", "v", "-"),
    "open_loop": ("#882255", ">", ":"),
    "gbma": ("#D55E00", "<", "-"),
    "tci": ("#7F7F7F", "X", "-."),
    PEAK_TCI: ("#332288", "d", "-"),
    "ci": ("#EE66AA", "P", "-"),
    "multi_antenna_ci": ("#8C510A", "h", "--"),
    "cotaf": ("#999933", "*", "-."),
    "pre_scaler": ("#117733", "H", "--"),
    "blind": ("#5E3C99", "p", "--"),
}
"""Policy -> colour, marker and line, in the legend's order.

Curves that run together differ in line and lightness, so the figure can be read without colours.
"""
TYPE = {"font.size": 12, "axes.titlesize": 13, "xtick.labelsize": 11, "ytick.labelsize": 11}
"""Points in a figure of ten inches: 9 points at the least where it is shown 800 pixels wide."""
UPLINKS = {
    "sums in phase": ("#0072B2", ("ci", "tci", "gbma", "cotaf", "cao_static", "pre_scaler")),
    "votes in phase": ("#009E73", ("one bit, ci", "one bit, tci")),
    "no phase": ("#D55E00", ("FSK-MV", "FSK-MV, absentees", "REED")),
    "types": ("#5E3C99", ("TBMA",)),
    "packets": ("#000000", ("top-k 0.3 %", "top-k 1 %", "2 bits")),
}
"""Kind of uplink -> its colour, and its uplinks in the order of `studies/field/field.yaml`."""


def get_policy_style(name: str) -> dict[str, Any]:
    """Return what plots take; hollow markers on broken lines, which show a curve beneath."""
    color, marker, line = POLICIES[name]
    style = {"color": color, "marker": marker, "ls": line, "ms": 6}
    return style if line == "-" else style | {"mfc": "none"}


def make_frame(panels: int, ylabel: str) -> tuple[Figure, np.ndarray]:
    """Return a figure of panels side by side, with grids, and its axes [panels]."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, panels, figsize=(10, 4.6), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel(ylabel)
    return figure, axes[0]


def draw_errorbars(axis: Axes, x: np.ndarray, values: xr.DataArray, **style: Any) -> None:
    """Draw mean and standard deviation over trials of values [x, trial]."""
    style = {"capsize": 3, "ms": 6} | style
    axis.errorbar(x, values.mean("trial"), values.std("trial", ddof=1), **style)


def compute_half_interval(values: xr.DataArray) -> xr.DataArray:
    """Return half the 95 % interval of the mean over trials, by Student's t."""
    trials = values.sizes["trial"]
    deviation = values.std("trial", ddof=1)
    return float(stats.t.ppf(0.975, trials - 1)) * deviation / trials**0.5


def draw_band(
    axis: Axes, x: np.ndarray, values: xr.DataArray, half: xr.DataArray | None = None, **style: Any
) -> None:
    """Draw the mean over trials of values [x, trial] in a band, else of one standard deviation."""
    mean = values.mean("trial")
    half = values.std("trial", ddof=1) if half is None else half
    axis.plot(x, mean, **style)
    axis.fill_between(x, mean - half, mean + half, color=style["color"], alpha=0.2, lw=0)


def save(figure: Figure, labelled: Axes, path: Path) -> None:
    """Write a figure with one panel's labels as the legend of all."""
    figure.legend(*labelled.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\nfigure: {path}")
