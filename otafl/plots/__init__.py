"""Draw results: curves, heat maps, Pareto fronts, distributions over devices, partitions and maps.

`curve_data`, `heatmap_data`, `pareto_data`, `cdf_data` and (of a scenario) `partition_data` and
`map_data` compute what is drawn: a data set that knows its labels. `draw` makes the figure of it,
`build_table` and `write_csv` the same numbers as rows; `draw_overview` picks what is worth a first
look.
`otafl.plots.kinds` names the kinds; nothing else is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "cdf": ("cdf_data",),
    "curves": ("curve_data",),
    "drawing": ("build_table", "describe_figure", "draw", "save", "write_csv"),
    "heatmap": ("heatmap_data",),
    "map": ("map_data",),
    "overviews": ("draw_overview",),
    "pareto": ("pareto_data",),
    "partition": ("partition_data",),
    "layout": ("COLOURS", "LINES", "MANY", "MARKERS"),
}


_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_MODULES)
