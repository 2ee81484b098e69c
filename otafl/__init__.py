"""Simulation of federated learning over wireless channels.

The public API: `load_scenario`, `run`, `sweep`, `open_results`, `over_the_air`, `WirelessUplink`,
`select_tuned`, `compute_cost_to_reach`, `compute_symbols_per_round`, `extract_timeline`,
`compute_loss_deviation`, `load_model`, `UserError`.
Heavy packages are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otafl import moved
from otafl.core.errors import UserError
from otafl.core.renamed import find_new_name

if TYPE_CHECKING:
    import xarray as xr

    from otafl.analysis.deviation import compute_loss_deviation
    from otafl.analysis.overhead import compute_cost_to_reach, compute_symbols_per_round
    from otafl.analysis.timeline import extract_timeline
    from otafl.analysis.tuning import select_tuned
    from otafl.exporting.deployment import load_model
    from otafl.own_loop.wireless import WirelessUplink, over_the_air
    from otafl.results.files import open_results
    from otafl.scenario import Scenario, load_scenario

    __version__: str

moved.install()

__all__ = [
    "UserError",
    "WirelessUplink",
    "__version__",
    "compute_cost_to_reach",
    "compute_loss_deviation",
    "compute_symbols_per_round",
    "extract_timeline",
    "load_model",
    "load_scenario",
    "open_results",
    "over_the_air",
    "run",
    "select_tuned",
    "sweep",
]

_LAZY = {
    "WirelessUplink": "otafl.own_loop.wireless",
    "compute_cost_to_reach": "otafl.analysis.overhead",
    "compute_loss_deviation": "otafl.analysis.deviation",
    "compute_symbols_per_round": "otafl.analysis.overhead",
    "extract_timeline": "otafl.analysis.timeline",
    "load_model": "otafl.exporting.deployment",
    "load_scenario": "otafl.scenario",
    "open_results": "otafl.results.files",
    "over_the_air": "otafl.own_loop.wireless",
    "select_tuned": "otafl.analysis.tuning",
}


def run(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    out: Path | str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    restart: bool = False,
) -> xr.Dataset:
    """Run every point of a scenario in memory, or into one file.

    Parameters
    ----------
    scenario : Scenario, mapping, str or Path
        A loaded scenario, a mapping of its keys, or the path of its YAML file.
    out : Path or str, optional
        NetCDF file for the result. A file that holds this scenario, or fewer of its values and
        trials, is not computed again. A file of another scenario raises an error, unless `restart`
        is true.
    progress : callable, optional
        Function that is called with (rounds done, rounds in total, note).
    restart : bool, default False
        Whether to ignore an existing file and compute everything again.

    Returns
    -------
    xarray.Dataset
        Result with the dims (sweep axes, trial, round[, device]).

    Raises
    ------
    UserError
        If the scenario, the data or the file is not valid. The message names the remedy.
    """
    from otafl import sweeping

    file = None if out is None else Path(out)
    return sweeping.run(_load_if_path(scenario), file, progress, restart=restart)


def sweep(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    folder: Path | str,
    progress: Callable[[int, int, str], None] | None = None,
    restart: bool = False,
) -> xr.Dataset:
    """Run a scenario into a folder, with one file for each finished part.

    Finished parts that the folder already holds are not computed again.

    Parameters
    ----------
    scenario : Scenario, mapping, str or Path
        A loaded scenario, a mapping of its keys, or the path of its YAML file.
    folder : Path or str
        Folder of the sweep, new or with parts of the same scenario.
    progress : callable, optional
        Function that is called with (rounds done, rounds in total, note).
    restart : bool, default False
        Whether to discard existing parts and compute everything again.

    Returns
    -------
    xarray.Dataset
        Result with the dims (sweep axes, trial, round[, device]).

    Raises
    ------
    UserError
        If the scenario, the data or the folder is not valid. The message names the remedy.
    """
    from otafl import sweeping

    return sweeping.sweep(_load_if_path(scenario), Path(folder), progress, restart=restart)


def _load_if_path(scenario: Scenario | Mapping[str, Any] | str | Path) -> Scenario:
    from otafl.scenario import Scenario, load_scenario

    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("otafl")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    return getattr(import_module(__name__), find_new_name(__name__, name))


def __dir__() -> list[str]:
    return sorted(__all__)
