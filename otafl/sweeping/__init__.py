"""Execution of the points of a sweep, grouped into stacks, in this program or by many workers.

Each finished stack is saved in one file, so that the same call continues after a kill: it computes
the stacks whose files are not there. A sweep that ends as a single file has its folder beside it
until then; one that stays in memory keeps nothing.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from otafl import tracking
from otafl.core import checksums
from otafl.core.errors import UserError, wrap_write_errors
from otafl.core.files import OWN_NAME, refuse_links, remove_own
from otafl.core.suggestions import format_count
from otafl.results import models as trained
from otafl.results.dataset import combine, describe_sweep
from otafl.results.files import SWEEP_FILE, SweepFile, list_parts, open_results, write_part
from otafl.running.memory import is_out_of_memory
from otafl.running.stack_run import TrackingOutput
from otafl.scenario import Scenario, expand
from otafl.scenario.keys import format_path, iterate_custom_sections
from otafl.sweeping.earlier import is_finished, name_own_file
from otafl.sweeping.planning import Stack, hash_sources, name_points, plan, select_missing
from otafl.sweeping.stack_job import (
    Execute,
    FailedStacks,
    Job,
    Meter,
    Progress,
    compute_part,
    make_short_error,
    run_here,
    run_jobs,
)
from otafl.sweeping.store import TRACK, UNFINISHED, Store, hold_folder
from otafl.user_code import sources

__all__ = [
    "FailedStacks",
    "Progress",
    "Stack",
    "get_unfinished_folder",
    "name_own_file",
    "plan",
    "run",
    "sweep",
]


def get_unfinished_folder(out: Path) -> Path:
    """Name the folder beside a result file that keeps its finished stacks until all are done."""
    return out.with_name(f"{out.stem}{UNFINISHED}")


@dataclass(frozen=True)
class _RunOptions:
    """How a sweep runs, see `sweep`."""

    progress: Progress | None
    workers: int
    scheduler: str | None
    checkpoint_every: int
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        for name in ("workers", "checkpoint_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UserError(f"{name}: expected a whole number of at least 0, got {value!r}")
        if self.workers and self.scheduler:
            raise UserError(
                f"workers {self.workers}: the workers are those of the scheduler {self.scheduler}; "
                "give one of the two"
            )


def run(
    scenario: Scenario,
    out: Path | None = None,
    progress: Progress | None = None,
    checkpoint_every: int = 0,
    tell: Callable[[str], None] = warnings.warn,
    workers: int = 0,
    scheduler: str | None = None,
) -> xr.Dataset:
    """Run a sweep that ends as one file, or in memory.

    A file with the result of the same scenario stays, if the result would be the same today. The
    file that a changed scenario is named after is replaced, and so are damaged ones; what else is
    there is refused.

    Parameters
    ----------
    scenario : Scenario
        As `load_scenario` returns it.
    out : str or Path, optional
        A .nc file. Finished stacks are kept beside it until all are done, so the same call resumes
        after an interruption; without it this program runs all in memory, and writes only what the
        scenario's tracker does, beside the file that `otafl run` would write.
    progress, checkpoint_every, tell, workers, scheduler
        See `sweep`.

    Returns
    -------
    xarray.Dataset
        Dims (sweep axes, trial, round[, device]).

    Raises
    ------
    UserError
        For what the user can mend, such as data that is not there or a file of another scenario,
        and while another program makes the same file.
    """
    way = _RunOptions(progress, workers, scheduler, checkpoint_every, tell)
    if out is None:
        # raise UserError for an option that needs files, as a run in memory has none
        for name in ("workers", "scheduler", "checkpoint_every"):
            if value := getattr(way, name):
                raise UserError(
                    f"{name}={value!r}: works through files, and a run in memory has none; "
                    "also give out='NAME.nc'"
                )
        return _run_in_memory(scenario, progress, tell)
    store = Store(get_unfinished_folder(out).absolute())
    models, tracks = trained.get_models_folder(out), tracking.get_track_folder(out)
    refuse_links(store.path, models, tracks)
    store.refuse_links()
    foreign = [path for path in models.glob("*") if not OWN_NAME.fullmatch(path.name)]
    if scenario.output.save_models and foreign:
        raise UserError(
            f"{foreign[0]}: is no file of otafl, where the models of {out} belong; move it away, "
            "or give another place with --out"
        )
    with hold_folder(store.path, str(out)), _discard_unused(store.path):
        if is_finished(out, scenario, tell):
            with wrap_write_errors(out):
                remove_own(store.path)  # of a run that ended before it could
            return open_results(out)
        return _write_file(store, _complete(scenario, store, way, tracks), out)


def sweep(
    scenario: Scenario,
    folder: Path,
    progress: Progress | None = None,
    workers: int = 0,
    scheduler: str | None = None,
    checkpoint_every: int = 0,
    tell: Callable[[str], None] = warnings.warn,
) -> xr.Dataset:
    """Run the stacks that a folder does not hold yet. Several programs may work on one folder.

    A folder keeps results of the same scenario, also with fewer values on its axes or fewer trials.

    Parameters
    ----------
    scenario : Scenario
        As `load_scenario` returns it.
    folder : Path
        Where the finished stacks are kept.
    progress : callable, optional
        Called with rounds done, rounds in all, and a text.
    workers : int
        Programs of this machine that share the stacks, 0 for only this one.
    scheduler : str, optional
        Address of a Dask scheduler whose workers share the stacks, and see the folder.
    checkpoint_every : int
        Rounds after which the state of a stack is saved, so that it continues from there after a
        kill; 0 for never.
    tell : callable
        Called with what is worth knowing.

    Raises
    ------
    UserError
        If the folder holds another scenario's results, or no worker can be had.
    WriteError
        Where the disk does not take more.
    FailedStacks
        If some stacks failed.
    """
    store = Store(folder.absolute())
    store.refuse_links()
    way = _RunOptions(progress, workers, scheduler, checkpoint_every, tell)
    made = _complete(scenario, store, way, store.path / TRACK)
    store.tidy()
    return store.open(made)


@sources.begin_run()
def _run_in_memory(
    scenario: Scenario, progress: Progress | None, tell: Callable[[str], None]
) -> xr.Dataset:
    """Run all stacks one after the other, and keep nothing of them on disk.

    Raises UserError if the memory is too short for a stack.
    """
    sources.check_unchanged()
    points = expand(scenario)
    names = name_points(points, hash_sources(points))
    tracks = TrackingOutput(tracking.get_track_folder(name_own_file(scenario)))
    stacks, parts = plan(points, names, {}), list[xr.Dataset]()
    meter = Meter(stacks, (), progress)
    for stack in stacks:
        try:
            part, _ = compute_part(stack, scenario, meter.report, tracks)
        except Exception as error:
            if is_out_of_memory(error):
                raise make_short_error(error, len(stack.rows)) from error
            raise
        meter.finish(stack.name)
        parts.append(part)
    for sentence in tracks.lost:
        tell(sentence)
    return combine(parts, describe_sweep(scenario))


@sources.begin_run()
def _complete(scenario: Scenario, store: Store, way: _RunOptions, tracks: Path) -> SweepFile:
    """Run the stacks that a folder does not hold yet."""
    sources.check_unchanged()
    known = store.read()
    points = expand(scenario)
    files = hash_sources(points)
    names = name_points(points, files)
    sweep = SweepFile(
        attributes=describe_sweep(scenario),
        names=names,
        trials=scenario.trials,
        sources=functools.reduce(operator.or_, files, {}),
    )
    if known is not None and sweep.contains(known) and known.attributes != sweep.attributes:
        if scenario.output.save_models:
            places = {name: place for place, name in enumerate(sweep.names)}
            numbers = {old: places[name] for old, name in enumerate(known.names)}
            for path in trained.list_model_files(store.path):
                trained.renumber(path, numbers, scenario)
        if list_parts(store.path):
            way.tell(
                f"{store.path}: the sweep has grown from {format_count(len(known.names), 'point')} "
                f"of {format_count(known.trials, 'trial')} to "
                f"{format_count(len(sweep.names), 'point')} of "
                f"{format_count(scenario.trials, 'trial')}; what is finished stays"
            )
    store.begin(sweep)
    by_name = dict(zip(names, files, strict=True))
    stacks = plan(points, names, store.read_sizes())
    held = store.find_held(scenario.output.save_models, way.tell)
    if not held:
        remove_own(tracks)
    missing = select_missing(stacks, held)
    if not missing:
        return sweep
    every = way.checkpoint_every
    with _choose_execution(way, len(stacks), missing) as execute:
        while missing:
            finished = [stack for stack in stacks if stack.rows <= held]
            names_of_finished = (stack.name for stack in finished)
            meter = Meter([*finished, *missing], names_of_finished, way.progress)
            jobs = [
                Job(scenario, stack, store.path, every, by_name[stack.names[0]], tracks)
                for stack in missing
            ]
            short = run_jobs(jobs, execute, meter, way.tell)
            lacking = {job.stack.name for job in short}  # a worker returns a copy of its job
            held = held.union(*(stack.rows for stack in missing if stack.name not in lacking))
            for job in short:
                store.halve(job.stack)
            if short:
                stacks = plan(points, names, store.read_sizes())
            missing = select_missing(stacks, held)
    return sweep


def _write_file(store: Store, sweep: SweepFile, out: Path) -> xr.Dataset:
    """Write a finished sweep to one file, remove its folder, and return the result."""
    models = trained.get_models_folder(out)
    with wrap_write_errors(out):
        own = {path.stem for path in list_parts(store.path)}
        for path in trained.list_model_files(out):
            if path.stem not in own:
                checksums.forget(path)
                path.unlink()
        for path in trained.list_model_files(store.path):
            models.mkdir(exist_ok=True)
            for one in (checksums.get_path(path), path):
                if one.exists():
                    one.replace(models / one.name)
        dataset = store.open(sweep)
        write_part(dataset, out)
        remove_own(store.path)
    return dataset


@contextlib.contextmanager
def _discard_unused(folder: Path) -> Iterator[None]:
    """Remove the folder of a run afterwards, unless the run began and is not finished."""
    try:
        yield
    finally:
        if not (folder / SWEEP_FILE).exists():
            remove_own(folder)


@contextlib.contextmanager
def _choose_execution(way: _RunOptions, num_stacks: int, missing: list[Stack]) -> Iterator[Execute]:
    """Choose who computes the stacks that are not finished.

    Fewer stacks need fewer workers, but with the same number of threads each, so that a resumed
    sweep equals an undisturbed one.
    """
    workers = min(way.workers, num_stacks)
    if way.scheduler or workers:
        _check_importable(missing)
    if way.workers > num_stacks:
        way.tell(
            f"{format_count(num_stacks, 'stack')} for {format_count(way.workers, 'worker')}; a "
            "smaller engine.memory_gb makes more of them"
        )
    if way.scheduler:
        from otafl.sweeping.cluster import connect_scheduler

        with connect_scheduler(way.scheduler, way.tell) as execute:
            yield execute
    elif workers:
        from otafl.sweeping.workers import WorkerPool

        with WorkerPool(min(workers, len(missing)), workers, way.tell) as pool:
            yield pool.run
    else:
        yield run_here


def _check_importable(stacks: list[Stack]) -> None:
    """Raise UserError if a stack needs an object that only this process has."""
    for stack in stacks:
        for path, section in iterate_custom_sections(stack.scenario):
            if sources.is_given(section.name) or section.name.startswith("__main__:"):
                raise UserError(
                    f"{format_path(path)}.name: workers cannot import '{section.name}', an object "
                    "of this program; put it into a module, or leave workers out"
                )
