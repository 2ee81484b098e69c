"""Open scenarios whose figures need no run, and pick the points that are panels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from otafl.plots import quantities
from otafl.results.coordinates import format_coordinate
from otafl.results.dataset import build_point_grid
from otafl.results.files import open_results
from otafl.scenario import (
    Scenario,
    expand,
    hash_custom_sources,
    is_scenario,
    load_scenario,
    restore_tree,
)
from otafl.user_code import loading


def open_scenario(path: Path, trust: bool) -> Scenario:
    """Return the scenario of a file or of a result.

    Raises UserError where it is a result that names code, which is not run without `trust`.
    """
    if is_scenario(path):
        return load_scenario(path)
    with loading.guard_imports(path, trust):
        scenario = load_scenario(restore_tree(open_results(path).attrs))
        for point in expand(scenario):
            hash_custom_sources(point.scenario)
    return scenario


@dataclass(frozen=True)
class Panels:
    """Panels of a figure: a scenario for each value of the facet, and the trial.

    coords: of the facet. table: the points. note: the first values of axes that are not drawn.
    """

    scenarios: list[Scenario]
    trial: int
    facet: str | None
    coords: dict[Any, Any]
    table: xr.Dataset
    note: str


def select_panels(
    scenario: Scenario, kind: str, facet: str | None, sel: quantities.Selection | None
) -> Panels:
    """Return the panels: values of the facet; axes that are neither drawn nor picked are at 0.

    Parameters
    ----------
    kind : of figures.
    facet, sel : flags of `otafl plot`; trial is 0 if it is not picked.

    Raises
    ------
    UserError : for unknown names.
    """
    table = build_point_grid(scenario).assign_coords(trial=np.arange(scenario.trials))
    table = table.rename(point_index=kind).broadcast_like(table["trial"])
    ds = quantities.select_values(table, {"trial": 0, **(sel or {})}, facet=facet)
    drawn = [facet] if facet else []
    ds = quantities.swap_to_coordinates(ds, drawn, kind)
    first = {dim: 0 for dim in ds[kind].dims if dim not in drawn}
    left = [str(dim) for dim in first if ds.sizes[dim] > 1]
    note = ", ".join(format_coordinate(ds, dim, ds[dim].values[0]) for dim in left)
    ds = ds.isel(first, drop=True)
    points, numbers = expand(scenario), np.atleast_1d(ds[kind].values)
    chosen = [points[int(number)].scenario for number in numbers]
    coords = dict(ds[kind].drop_vars("trial").coords)
    return Panels(chosen, int(ds["trial"]), facet, coords, ds, note)
