"""Run the points of a sweep, grouped into stacks, here or by many workers, and keep them: one file
a finished stack, so that whatever is killed, the same call goes on from what is finished."""

from __future__ import annotations

import contextlib
import functools
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from otafl import tracking
from otafl.core.errors import changing
from otafl.results import models as trained
from otafl.results.dataset import combine, to_dataset
from otafl.results.files import finished_files, open_results, write_part
from otafl.results.packing import pack
from otafl.running.following import Tracks
from otafl.scenario import Scenario, expand
from otafl.sweeping import locks
from otafl.sweeping.executing import Execute, FailedStacks, carried_out, here
from otafl.sweeping.folder import Folder
from otafl.sweeping.growing import grow
from otafl.sweeping.meter import Meter, Progress
from otafl.sweeping.planning import Batch, Stack, plan, sources_of_each, stored
from otafl.sweeping.resuming import finished, remove_outdated
from otafl.sweeping.working import Job, inputs_of, record_of
from otafl.user_code import sources

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Batch",
    "FailedStacks",
    "Progress",
    "Stack",
    "expand",
    "plan",
    "run",
    "sweep",
    "unfinished",
]


def run(
    scenario: Scenario,
    out: Path | None = None,
    progress: Progress | None = None,
    checkpoint_every: int = 0,
    tell: Callable[[str], None] = warnings.warn,
    restart: bool = False,
) -> xr.Dataset:
    """Run every point of a scenario in this program.

    Parameters
    ----------
    scenario : Scenario
        As `load_scenario` returns it.
    out : str or Path, optional
        A .nc file. Finished stacks are kept beside it until all are done, so the same call resumes
        after an interruption; without it all stays in memory, but for what the scenario's tracker
        writes beside the file that `otafl run` would.
    checkpoint_every, tell, restart
        See `sweep`.

    Returns
    -------
    xarray.Dataset
        Dims (sweep axes, trial, round[, device]).

    Raises
    ------
    UserError
        For what the user can mend, such as data that is not there, and while another program makes
        the same file.
    """
    if out is None:
        sources.refresh()
        stacks = plan(expand(scenario), tell=tell)
        meter = Meter(stacks, progress)
        parts = []
        file = Path(scenario.output.folder) / f"{scenario.name}.nc"
        tracks = Tracks(tracking.of_file(file))
        for stack in stacks:
            record = record_of(stack, functools.partial(meter.report, stack.number), tracks=tracks)
            if not record.complete:
                raise KeyboardInterrupt
            meter.finished(stack.number)
            parts.append(to_dataset(record, stack.points, scenario, inputs_of(stack.scenario)))
        for sentence in tracks.lost:
            tell(sentence)
        return combine(parts)
    kept = unfinished(out).absolute()
    with locks.alone(kept, str(out)):
        _complete(
            scenario,
            kept,
            progress,
            checkpoint_every=checkpoint_every,
            tell=tell,
            restart=restart,
            result=out.absolute(),
        )
        in_parts = bool(finished_files(kept))
        dataset = open_results(kept if in_parts else out)
        new, models = trained.folder_of(kept), trained.folder_of(out)
        moved = scenario.output.save_models and not new.exists()  # before an interruption
        with changing(out):
            if not moved:
                shutil.rmtree(models, ignore_errors=True)
            if new.exists():
                new.rename(models)
            if in_parts:
                write_part(dataset, out)
            _remove(kept)
    return dataset


def unfinished(out: Path) -> Path:
    """Name the folder beside a result file that keeps its finished stacks until all are done."""
    return out.with_name(f"{out.stem}.unfinished")


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

    A folder with results of the same scenario, but for fewer values on its axes or fewer trials,
    keeps them.

    Parameters
    ----------
    scenario : Scenario
        As `load_scenario` returns it.
    folder : Path
        Where the finished stacks are kept.
    progress : callable, optional
        Called with rounds done, rounds in all, and a text.
    workers : int
        Programs of this machine that share the stacks, 0 for none but this one.
    scheduler : str, optional
        Address of a Dask scheduler whose workers share the stacks, and see the folder.
    checkpoint_every : int
        Rounds after which the state of a stack is kept, so that it goes on from there when it was
        killed; 0 for never.
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
        kept in `interrupted.nc`.
    """
    folder = folder.absolute()
    _complete(scenario, folder, progress, workers, scheduler, checkpoint_every, tell, restart)
    return open_results(folder)


def _complete(
    scenario: Scenario,
    folder: Path,
    progress: Progress | None = None,
    workers: int = 0,
    scheduler: str | None = None,
    checkpoint_every: int = 0,
    tell: Callable[[str], None] = warnings.warn,
    restart: bool = False,
    result: Path | None = None,
) -> None:
    """Run the stacks that a folder does not hold yet, as `sweep` says.

    result: where a single stack that is not there yet is written, as the whole that it is, instead
    of as a part in the folder.
    """
    sources.refresh()
    home = Folder(folder)
    if not restart:
        grow(home, scenario, workers, tell)
    thrown = home.made_ready(scenario, restart)
    if thrown:
        tell(f"{folder}: --restart threw away {thrown}")
    tracks = tracking.of_sweep(folder) if result is None else tracking.of_file(result)
    stacks = stored(scenario, folder, workers, tell, lambda: tracking.clear(tracks))
    meter = Meter(stacks, progress)
    if old := home.old_state():
        names = ", ".join(str(path.relative_to(folder)) for path in old)
        tell(f"{folder}: {names}: kept by an older otafl; not read, its stacks are computed anew")
    own = sources_of_each(stacks)
    models = scenario.output.save_models and result is None  # else they may lie beside it by now
    there = finished(home, scenario, stacks, own, tell, models)
    for number in there:
        meter.was_finished(number)
    jobs = [
        Job(
            scenario,
            stack,
            folder,
            checkpoint_every,
            own[stack.number],
            result=result if len(stacks) == 1 else None,
            tracks=tracks,
        )
        for stack in stacks
        if stack.number not in there
    ]
    with _execution(min(workers, len(stacks)), scheduler, jobs, tell) as execute:
        carried_out(jobs, execute, meter, functools.partial(_pack, folder), tell)
    if any(own):  # a program that began before a module was changed may have put its stacks there
        remove_outdated(home, scenario, stacks, own)
    _pack(folder, finished=True)
    home.tidy()


@contextlib.contextmanager
def _execution(
    workers: int, scheduler: str | None, jobs: list[Job], tell: Callable[[str], None]
) -> Iterator[Execute]:
    """Choose who carries out the jobs.

    workers: their number for all stacks of the sweep. Fewer jobs need fewer of them, but with the
    same number of threads each, so that a resumed sweep computes the same bits.
    """
    if jobs and scheduler:
        from otafl.sweeping.cluster import of_scheduler

        with of_scheduler(scheduler, tell) as execute:
            yield execute
    elif jobs and workers:
        from otafl.sweeping.local import WorkerPool

        with WorkerPool(min(workers, len(jobs)), workers) as pool:
            yield pool.run
    else:
        yield here


def _remove(folder: Path) -> None:
    """Remove a folder of finished stacks at once: with half of them the same call would begin to
    compute the others."""
    removed = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(removed, ignore_errors=True)
    folder.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def _pack(folder: Path, finished: bool = False) -> None:
    """Pack the folder, unless another program does it just now."""
    with contextlib.suppress(locks.Busy), locks.held(Folder(folder).lock("pack"), wait=False):
        pack(folder, finished)
