"""Execution of the points of a sweep, grouped into stacks, in this program or by many workers.

Each finished stack is saved in one file, so that the same call continues after a kill.

There is one kind of sweep. One that ends as a single file has its folder beside it until then; one
that stays in memory keeps nothing.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from otafl import tracking
from otafl.core.errors import UserError
from otafl.core.files import OWN_NAME, refuse_links, remove_own
from otafl.results import models as trained
from otafl.results.dataset import combine
from otafl.results.files import open_results
from otafl.results.packing import pack
from otafl.running.run_tracking import TrackingOutput
from otafl.scenario import Scenario, expand
from otafl.scenario.keys import format_path, iterate_custom_sections
from otafl.sweeping import locks
from otafl.sweeping.executing import Execute, FailedStacks, run_here, run_jobs
from otafl.sweeping.folder import TRACK, Folder
from otafl.sweeping.growing import grow
from otafl.sweeping.meter import Meter, Progress
from otafl.sweeping.plan_file import hash_sources_per_stack, load_or_create
from otafl.sweeping.planning import Batch, Stack, plan
from otafl.sweeping.resuming import check_sources, find_finished
from otafl.sweeping.single import (
    discard_unused,
    get_unfinished_folder,
    name_own_file,
    read_file,
    write_file,
)
from otafl.sweeping.stack_job import Job, run_batches, to_part
from otafl.user_code import sources

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Batch",
    "FailedStacks",
    "Progress",
    "Stack",
    "expand",
    "get_unfinished_folder",
    "name_own_file",
    "plan",
    "run",
    "sweep",
]


@dataclass(frozen=True)
class _RunOptions:
    """How a sweep runs, see `sweep`."""

    progress: Progress | None
    workers: int
    scheduler: str | None
    checkpoint_every: int
    tell: Callable[[str], None]
    restart: bool

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

    def check_in_memory(self) -> None:
        """Raise UserError for an option that needs files, as a run in memory has none."""
        for name in ("workers", "scheduler", "checkpoint_every"):
            if value := getattr(self, name):
                raise UserError(
                    f"{name}={value!r}: works through files, and a run in memory has none; "
                    "also give out='NAME.nc'"
                )


def run(
    scenario: Scenario,
    out: Path | None = None,
    progress: Progress | None = None,
    checkpoint_every: int = 0,
    tell: Callable[[str], None] = warnings.warn,
    restart: bool = False,
    workers: int = 0,
    scheduler: str | None = None,
) -> xr.Dataset:
    """Run a sweep that ends as one file, or in memory.

    A file with results of the same scenario, or for fewer values on its axes or fewer trials, keeps
    them, if they would be the same today. The file that a changed scenario is named after is
    replaced, and so are damaged ones; what else is there is refused.

    Parameters
    ----------
    scenario : Scenario
        As `load_scenario` returns it.
    out : str or Path, optional
        A .nc file. Finished stacks are kept beside it until all are done, so the same call resumes
        after an interruption; without it this program runs all in memory, and writes only what the
        scenario's tracker does, beside the file that `otafl run` would write.
    progress, checkpoint_every, tell, restart, workers, scheduler
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
    way = _RunOptions(progress, workers, scheduler, checkpoint_every, tell, restart)
    if out is None:
        way.check_in_memory()
        return _run_in_memory(scenario, progress, tell)
    home = Folder(get_unfinished_folder(out).absolute())
    models = trained.get_models_folder(out)
    refuse_links(home.path, models, tracking.get_track_folder(out))
    foreign = [path for path in models.glob("*") if not OWN_NAME.fullmatch(path.name)]
    if scenario.output.save_models and foreign:
        raise UserError(
            f"{foreign[0]}: is no file of otafl, where the models of {out} belong; move it away, "
            "or give another place with --out"
        )
    home.refuse_links()
    with locks.hold_folder(home.path, str(out)):
        try:
            _complete(scenario, home, way, out.absolute())
        except UserError:
            discard_unused(home)
            raise
        return write_file(home, out, scenario)


def sweep(
    scenario: Scenario,
    folder: Path,
    progress: Progress | None = None,
    workers: int = 0,
    scheduler: str | None = None,
    checkpoint_every: int = 0,
    tell: Callable[[str], None] = warnings.warn,
    restart: bool = False,
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
    restart : bool
        Throw away what the folder holds, of whichever scenario, and say what that was.

    Raises
    ------
    UserError
        If the folder holds another scenario's results, and not `restart`; or no worker can be had.
    WriteError
        Where the disk does not take more.
    FailedStacks
        If some stacks failed twice. On KeyboardInterrupt the records of the stack that ran here are
        kept in `interrupted_path.nc`.
    """
    home = Folder(folder.absolute())
    home.refuse_links()
    way = _RunOptions(progress, workers, scheduler, checkpoint_every, tell, restart)
    _complete(scenario, home, way)
    return open_results(home.path)


@sources.begin_run()
def _run_in_memory(
    scenario: Scenario, progress: Progress | None, tell: Callable[[str], None]
) -> xr.Dataset:
    """Run all stacks one after the other, and keep nothing of them on disk."""
    stacks = plan(expand(scenario))
    meter = Meter(stacks, progress)
    tracks = TrackingOutput(tracking.get_track_folder(name_own_file(scenario)))
    parts = []
    for stack in stacks:
        record = run_batches(stack, functools.partial(meter.report, stack.number), tracks=tracks)
        if not record.complete:
            raise KeyboardInterrupt
        meter.finish(stack.number)
        parts.append(to_part(record, stack, scenario))
    for sentence in tracks.lost:
        tell(sentence)
    return combine(parts)


@sources.begin_run()
def _complete(
    scenario: Scenario, home: Folder, way: _RunOptions, result: Path | None = None
) -> None:
    """Run the stacks that a folder does not hold yet.

    result: the file that the sweep ends as. The only stack of a sweep is written there at once,
    instead of as a part in the folder.
    """
    folder, tell = home.path, way.tell
    if not way.restart:
        read = None if result is None else functools.partial(read_file, result)
        growth = grow(home, scenario, way.workers, tell, read)
        if growth and (said := growth.describe()):
            tell(f"{result or folder}: {said}")
    thrown = home.prepare(scenario, way.restart)
    if thrown:
        tell(f"{folder}: --restart threw away {thrown}")
    tracks = folder / TRACK if result is None else tracking.get_track_folder(result)
    stacks = load_or_create(scenario, folder, way.workers, lambda: remove_own(tracks))
    meter = Meter(stacks, way.progress)
    own = hash_sources_per_stack(stacks)
    models = scenario.output.save_models and result is None  # else they may lie beside it by now
    there = find_finished(home, scenario, stacks, own, tell, models)
    for number in there:
        meter.add_finished(number)
    target = result if len(stacks) == 1 else None
    jobs = [
        Job(
            scenario,
            stack,
            folder,
            way.checkpoint_every,
            own[stack.number],
            result=target,
            tracks=tracks,
        )
        for stack in stacks
        if stack.number not in there
    ]
    with _choose_execution(way, len(stacks), jobs) as execute:
        run_jobs(jobs, execute, meter, functools.partial(_pack, folder), tell)
    if any(own):  # a program that began before a module was changed may have put its stacks there
        check_sources(home, scenario, stacks)
    _pack(folder, finished=True)
    home.tidy()


@contextlib.contextmanager
def _choose_execution(way: _RunOptions, num_stacks: int, jobs: list[Job]) -> Iterator[Execute]:
    """Choose who carries out the jobs, which are those of the stacks that are not finished.

    Fewer jobs need fewer workers, but with the same number of threads each, so that a resumed sweep
    equals an undisturbed one.
    """
    workers = min(way.workers, num_stacks)
    if jobs and (way.scheduler or workers):
        _check_importable(jobs)
    if jobs and way.scheduler:
        from otafl.sweeping.cluster import connect_scheduler

        with connect_scheduler(way.scheduler, way.tell) as execute:
            yield execute
    elif jobs and workers:
        from otafl.sweeping.local import WorkerPool

        with WorkerPool(min(workers, len(jobs)), workers, way.tell) as pool:
            yield pool.run
    else:
        yield run_here


def _check_importable(jobs: list[Job]) -> None:
    """Raise UserError if a job needs an object that only this process has."""
    for job in jobs:
        for path, section in iterate_custom_sections(job.stack.scenario):
            if sources.is_given(section.name) or section.name.startswith("__main__:"):
                raise UserError(
                    f"{format_path(path)}.name: workers cannot import '{section.name}', an object "
                    "of this program; put it into a module, or leave workers out"
                )


def _pack(folder: Path, finished: bool = False) -> None:
    """Pack the folder, unless another program does it just now."""
    with (
        contextlib.suppress(locks.Busy),
        locks.hold_lock(Folder(folder).get_lock_path("pack"), wait=False),
    ):
        pack(folder, finished)
