"""Simulate federated learning over wireless channels.

The public API: `load_scenario`, `run`, `sweep`, `open_results`, `over_the_air`, `WirelessUplink`,
`tuned`, `to_reach`, `symbols_per_round`, `timeline_of`, `deviation`, `load_model`, `UserError`.
Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otafl import moved
from otafl.core.errors import UserError

if TYPE_CHECKING:
    import xarray as xr

    from otafl.analysis.deviation import deviation
    from otafl.analysis.overhead import symbols_per_round, to_reach
    from otafl.analysis.timeline import timeline_of
    from otafl.analysis.tuning import tuned
    from otafl.exporting.deployed import load_model
    from otafl.own_loop.wireless import WirelessUplink, over_the_air
    from otafl.results.files import open_results
    from otafl.scenario import Scenario, load_scenario

    __version__: str

moved.install()

__all__ = [
    "UserError",
    "WirelessUplink",
    "__version__",
    "deviation",
    "load_model",
    "load_scenario",
    "open_results",
    "over_the_air",
    "run",
    "sweep",
    "symbols_per_round",
    "timeline_of",
    "to_reach",
    "tuned",
]

_LAZY = {
    "WirelessUplink": "otafl.own_loop.wireless",
    "deviation": "otafl.analysis.deviation",
    "load_model": "otafl.exporting.deployed",
    "load_scenario": "otafl.scenario",
    "open_results": "otafl.results.files",
    "over_the_air": "otafl.own_loop.wireless",
    "symbols_per_round": "otafl.analysis.overhead",
    "timeline_of": "otafl.analysis.timeline",
    "to_reach": "otafl.analysis.overhead",
    "tuned": "otafl.analysis.tuning",
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
    scenario : a loaded one, a mapping of its keys, or the path of its YAML file.
    out : NetCDF file to write the result to; none if not given. One that is there and holds this
        scenario, or fewer of its values and trials, is not computed again; one of another scenario
        is refused, unless `restart`.
    progress : called with (rounds done, rounds in all, note).
    restart : compute everything anew.

    Returns
    -------
    A dataset with the sweep's axes, trial, round and device as dims.

    Raises
    ------
    UserError : for what the user can mend, in one sentence.
    """
    from otafl import sweeping

    file = None if out is None else Path(out)
    return sweeping.run(_loaded(scenario), file, progress, restart=restart)


def sweep(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    folder: Path | str,
    progress: Callable[[int, int, str], None] | None = None,
    restart: bool = False,
) -> xr.Dataset:
    """Run a scenario into a folder, a file for each finished part; what is there already is kept.

    Parameters
    ----------
    scenario, progress, restart : as of `run`.
    folder : of the sweep, new or with parts of the same scenario.

    Returns
    -------
    The dataset, as of `run`.

    Raises
    ------
    UserError : for what the user can mend, in one sentence.
    """
    from otafl import sweeping

    return sweeping.sweep(_loaded(scenario), Path(folder), progress, restart=restart)


def _loaded(scenario: Scenario | Mapping[str, Any] | str | Path) -> Scenario:
    from otafl.scenario import Scenario, load_scenario

    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("otafl")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'otafl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
