"""Simulation of federated learning over wireless channels.

The public API: `load_scenario`, `run`, `sweep`, `open_results`, `over_the_air`, `WirelessUplink`,
`compare_pairs`, `compare_results`, `select_tuned`, `compute_cost_to_reach`,
`compute_symbols_per_round`, `extract_timeline`, `compute_loss_deviation`, `load_model`,
`UserError`.
Heavy packages are imported on first use.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otafl.core.errors import UserError

if TYPE_CHECKING:
    import xarray as xr

    from otafl.analysis.deviation import compute_loss_deviation
    from otafl.analysis.overhead import compute_cost_to_reach, compute_symbols_per_round
    from otafl.analysis.paired import compare_pairs, compare_results
    from otafl.analysis.timeline import extract_timeline
    from otafl.analysis.tuning import select_tuned
    from otafl.exporting.deployment import load_model
    from otafl.own_loop.wireless import WirelessUplink, over_the_air
    from otafl.results.files import open_results
    from otafl.scenario import Scenario, load_scenario

    __version__: str

__all__ = [
    "UserError",
    "WirelessUplink",
    "__version__",
    "compare_pairs",
    "compare_results",
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
    "compare_pairs": "otafl.analysis.paired",
    "compare_results": "otafl.analysis.paired",
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
    progress: bool | Callable[[int, int, str], None] | None = None,
    *,
    workers: int = 0,
    scheduler: str | None = None,
    checkpoint_every: int = 0,
) -> xr.Dataset:
    """Run every point of a scenario in memory, or into one file.

    The arguments have the names and effects of the options of `otafl run`.

    Parameters
    ----------
    scenario : Scenario, mapping, str or Path
        A loaded scenario, a mapping of its keys, or the path of its YAML file.
    out : Path or str, optional
        NetCDF file for the result. A file that holds the result of this scenario is not computed
        again. A file of another scenario raises an error.
    progress : bool or callable, optional
        True for a bar in a terminal. A function is called with (rounds done, rounds in total,
        note).
    workers : int, default 0
        Number of programs of this machine that share the stacks; 0 for only this one. It needs
        `out`.
    scheduler : str, optional
        Address of a Dask scheduler whose workers share the stacks. It needs `out`.
    checkpoint_every : int, default 0
        Number of rounds after which the state of a stack is saved; 0 for never. It needs `out`.

    Returns
    -------
    xarray.Dataset
        Result with the dims (sweep axes, trial, round[, device]).

    Raises
    ------
    UserError
        If the scenario, the data, the file or an argument is not valid. The message names the
        remedy.
    """
    from otafl import sweeping

    loaded = _load(scenario)
    file = None if out is None else Path(out)
    with _show_progress(progress) as shown:
        dataset = sweeping.run(
            loaded,
            file,
            shown,
            checkpoint_every,
            workers=workers,
            scheduler=scheduler,
        )
    return _warn_of_absent_updates(dataset)


def sweep(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    folder: Path | str,
    progress: bool | Callable[[int, int, str], None] | None = None,
    *,
    workers: int = 0,
    scheduler: str | None = None,
    checkpoint_every: int = 0,
) -> xr.Dataset:
    """Run a scenario into a folder, with one file for each finished part.

    Finished parts that the folder already holds are not computed again. The arguments have the
    names and effects of the options of `otafl sweep`.

    Parameters
    ----------
    scenario : Scenario, mapping, str or Path
        A loaded scenario, a mapping of its keys, or the path of its YAML file.
    folder : Path or str
        Folder of the sweep, new or with parts of the same scenario.
    progress : bool or callable, optional
        True for a bar in a terminal. A function is called with (rounds done, rounds in total,
        note).
    workers : int, default 0
        Number of programs of this machine that share the stacks; 0 for only this one.
    scheduler : str, optional
        Address of a Dask scheduler whose workers share the stacks.
    checkpoint_every : int, default 0
        Number of rounds after which the state of a stack is saved; 0 for never.

    Returns
    -------
    xarray.Dataset
        Result with the dims (sweep axes, trial, round[, device]).

    Raises
    ------
    UserError
        If the scenario, the data, the folder or an argument is not valid. The message names the
        remedy.
    """
    from otafl import sweeping

    loaded = _load(scenario)
    with _show_progress(progress) as shown:
        dataset = sweeping.sweep(loaded, Path(folder), shown, workers, scheduler, checkpoint_every)
    return _warn_of_absent_updates(dataset)


def _warn_of_absent_updates(dataset: xr.Dataset) -> xr.Dataset:
    """Return the result, and warn if no update arrived in a trial, or if a path ended early."""
    from otafl.analysis.cautions import describe_ended_paths, describe_lost_runs

    for said in filter(None, (describe_lost_runs(dataset), describe_ended_paths(dataset))):
        warnings.warn(said, stacklevel=3)
    return dataset


def _load(scenario: Scenario | Mapping[str, Any] | str | Path) -> Scenario:
    """Load a scenario, unless it is loaded."""
    from otafl.scenario import Scenario, load_scenario

    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)


def _show_progress(
    progress: bool | Callable[[int, int, str], None] | None,
) -> AbstractContextManager[Callable[[int, int, str], None] | None]:
    """Return what displays the progress, as a context."""
    if progress is True:
        from otafl.core.console import Progress

        return Progress()
    if progress is None or progress is False or callable(progress):
        return nullcontext(progress or None)
    raise UserError(
        f"progress: expected True, False or a function of (done, total, note), got {progress!r}"
    )


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("otafl")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
