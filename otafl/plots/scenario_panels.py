"""Open scenarios whose figures need no run, and pick the points that are panels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from otafl.plots import quantities
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

    Raises UserError where it is a result, or the copy in a sweep's folder, that names code, which
    is not run without `trust`.
    """
    own = is_scenario(path) if path.is_file() else False
    with loading.guard_imports(path, trust or (own and not (path.parent / "sweep.json").exists())):
        scenario = load_scenario(path if own else restore_tree(open_results(path).attrs))
        for point in expand(scenario):
            hash_custom_sources(point.scenario)
    return scenario


@dataclass(frozen=True)
class Panels:
    """Panels of a figure: a scenario for each value of the facet, and the trial.

    coords: of the facet. table: the points, after `quantities.picked`.
    """

    scenarios: list[Scenario]
    trial: int
    facet: str | None
    coords: dict[Any, Any]
    table: xr.Dataset


def select_panels(
    scenario: Scenario,
    kind: str,
    identity: Callable[[Scenario], str],
    facet: str | None,
    sel: quantities.Selection | None,
) -> Panels:
    """Return the panels: values of the facet, else of the first axis that changes what is drawn.

    Parameters
    ----------
    kind : of figures.
    identity : says what the figure of a point depends on.
    facet, sel : flags of `otafl plot`; trial is 0 if it is not picked.

    Raises
    ------
    UserError : for unknown names, and for an axis that is neither drawn nor picked.
    """
    table = build_point_grid(scenario).assign_coords(trial=np.arange(scenario.trials))
    table = table.rename(point_index=kind).broadcast_like(table["trial"])
    ds = quantities.select_values(table, {"trial": 0, **(sel or {})}, facet=facet)
    numbers = ds[kind]
    scenarios = [point.scenario for point in expand(scenario)]
    for dim in numbers.dims:
        if dim != facet and _is_constant([identity(one) for one in scenarios], numbers, str(dim)):
            ds = ds.isel({dim: 0}, drop=True)
    left = [str(dim) for dim in ds[kind].dims if ds.sizes[dim] > 1]
    facet = facet or (left[0] if left else None)
    drawn = [facet] if facet else []
    ds = quantities.swap_to_coordinates(ds, drawn, kind)
    numbers = quantities.squeeze_undrawn(ds[kind], drawn, "--facet")
    chosen = [scenarios[int(number)] for number in np.atleast_1d(numbers.values)]
    coords = dict(numbers.drop_vars("trial").coords)
    return Panels(chosen, int(ds["trial"]), facet, coords, ds)


def _is_constant(identity_keys: list[str], numbers: xr.DataArray, dim: str) -> bool:
    """Return whether points that differ only along a dim are drawn alike."""
    keys = np.array(identity_keys, dtype=object)[numbers.transpose(dim, ...).values]
    return bool((keys == keys[:1]).all())
