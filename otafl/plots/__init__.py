"""Figures from results: curves, heat maps, Pareto fronts and distributions over devices.

`curve_data`, `heatmap_data`, `pareto_data` and `cdf_data` compute what is drawn: a data set that
knows its labels. `draw` makes the figure of it, `table` and `write_csv` the same numbers as rows.
`plot` does both for curves; `overview` picks what is worth a first look.
"""

from otafl.plots.cdfs import cdf_data, main_device_variable
from otafl.plots.curves import curve_data
from otafl.plots.directions import better
from otafl.plots.drawing import draw, plot
from otafl.plots.fronts import main_cost, pareto_data
from otafl.plots.heatmaps import heatmap_data
from otafl.plots.overviews import main_variable, overview
from otafl.plots.style import COLOURS, LINES, MANY, MARKERS
from otafl.plots.tables import table, write_csv

__all__ = [
    "COLOURS",
    "LINES",
    "MANY",
    "MARKERS",
    "better",
    "cdf_data",
    "curve_data",
    "draw",
    "heatmap_data",
    "main_cost",
    "main_device_variable",
    "main_variable",
    "overview",
    "pareto_data",
    "plot",
    "table",
    "write_csv",
]
