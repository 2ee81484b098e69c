"""Jobs of a sweep: compute a stack from its points to its finished file, here or in a worker."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
import xarray as xr

from otafl import data
from otafl.core.errors import UserError, WriteError
from otafl.core.files import write_text
from otafl.core.suggestions import shorten
from otafl.results import models as trained
from otafl.results.dataset import to_dataset
from otafl.results.files import PARTS, write_part
from otafl.results.models import TrainedModels
from otafl.results.origins import get_versions
from otafl.running.memory import is_out_of_memory
from otafl.running.stack_run import Checkpoint, TrackingOutput, run_stack
from otafl.scenario import Point, Scenario, hash_named_files
from otafl.sweeping.planning import Stack, hash_files
from otafl.sweeping.store import FAILURES, MODELS, RUNNING, Busy, Store
from otafl.user_code import loading, sources
from otafl.user_code.sources import Sources, hash_otafl

Report = Callable[[str, int], None]
"""Called with (name of the stack, its rounds done)."""

REPORT_EVERY_S = 0.5
"""A worker reports no more often."""


@dataclass(frozen=True)
class Job:
    """Order to compute a stack of a sweep.

    folder: that all workers see, by this absolute path. checkpoint_every: rounds, 0 for never.
    sources: files that the stack needs, as the client has them. versions: of
    the programs that the client runs. tracks: the folder of the runs that a tracker follows.
    """

    scenario: Scenario
    stack: Stack
    folder: Path
    checkpoint_every: int
    sources: Sources
    tracks: Path
    versions: dict[str, str] = field(default_factory=get_versions)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job.

    state: "busy" where another program is at it, "short" where memory was. kind: of the error,
    "write" where the disk is the cause, "user" where the user can mend it. error: that was raised,
    if it was here. notes: what is worth knowing of a job that is done.
    """

    job: Job
    state: Literal["done", "busy", "short", "failed"]
    kind: Literal["", "user", "write", "other"] = ""
    message: str = ""
    trace: str = ""
    error: Exception | None = None
    notes: tuple[str, ...] = ()


def run_job(job: Job, report: Report, waits: bool = False) -> Outcome:
    """Compute the job's stack, unless its file is there by now.

    waits: for another program that is at it. Errors are outcomes; KeyboardInterrupt propagates.
    """
    store, stack = Store(job.folder), job.stack
    notes: list[str] = []
    try:
        # raise UserError unless programs and the user's code are here what they are at the client
        if job.versions != get_versions():
            raise UserError(
                f"this worker has {_format_versions(get_versions())}, the client "
                f"{_format_versions(job.versions)}; install the same versions everywhere"
            )
        sources.check_unchanged()
        other = sources.list_changed(job.sources, hash_files(job.stack.scenario))
        if other:
            raise UserError(
                f"{', '.join(other)}: changed while the sweep ran, or differs between client and "
                "workers; with the same files everywhere, the same command continues"
            )
        with store.lock(stack.name, waits):
            if not store.holds(stack, job.scenario.output.save_models):
                _compute(job, store, report, notes)
    except Busy:
        return Outcome(job, "busy")
    except Exception as raised:
        error = loading.explain_error(raised)
        if is_out_of_memory(raised):
            if len(stack.rows) > 1:
                return Outcome(job, "short")
            error = make_short_error(raised)
        kind: Literal["user", "write", "other"] = "other"
        if isinstance(error, UserError):
            kind = "write" if isinstance(error, WriteError) else "user"
        trace = "".join(traceback.format_exception(error))
        return Outcome(job, "failed", kind, _format_error(error), trace, error)
    finally:
        free_memory()
    return Outcome(job, "done", notes=tuple(notes))


@sources.begin_run()
def run_remote_job(job: Job, send: Report, waits: bool = False) -> Outcome:
    """Do a job in a worker, as `run_job` does; what it returns can be sent from program to program.

    send: called as `report` is, now and then.
    """
    sent = 0.0

    def report(stack: str, rounds: int) -> None:
        nonlocal sent
        if time.monotonic() - sent >= REPORT_EVERY_S:
            sent = time.monotonic()
            send(stack, rounds)

    return replace(run_job(job, report, waits), error=None)


def compute_part(
    stack: Stack,
    scenario: Scenario,
    report: Report,
    tracks: TrackingOutput,
    checkpoint: Checkpoint | None = None,
) -> tuple[xr.Dataset, TrainedModels | None]:
    """Run a stack; return its record as a part of the sweep, and the models that it keeps."""

    def tell(done: int, total: int) -> None:
        report(stack.name, done)

    record = run_stack(stack.points, tell, stack.trials, checkpoint, tracks)
    inputs = hash_inputs(stack.scenario)
    part = to_dataset(record, stack.points, scenario, inputs, stack.trials, stack.names)
    return part, record.models


def hash_inputs(scenario: Scenario) -> dict[str, str]:
    """Return hashes of what a stack's numbers depend on beside versions and own modules."""
    found = {"otafl": hash_otafl(), "data": data.compute_fingerprint(scenario.data)}
    return found | hash_named_files(scenario)


def make_short_error(error: Exception, num_trials: int = 1) -> UserError:
    """Return the error of trials that there is no memory for."""
    what, remedy = "a single trial", "a smaller engine.chunk_mb, or fewer workers"
    if num_trials > 1:
        what = f"{num_trials} trials at once"
        remedy = "a smaller engine.memory_gb, or give out='NAME.nc', which halves their number"
    return UserError(
        f"engine.memory_gb: there is no memory for {what} ({_format_error(error)}); use {remedy}"
    )


def free_memory() -> None:
    """Free the memory of a stack that is finished or failed."""
    gc.collect()  # trick: its tensors lie in cycles, and the collector counts objects, not bytes
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _compute(job: Job, store: Store, report: Report, notes: list[str]) -> None:
    stack, tracks = job.stack, TrackingOutput(job.tracks)
    checkpoint = None
    if job.checkpoint_every:
        checkpoint = Checkpoint(store.get_path(RUNNING, stack.name), job.checkpoint_every)
    part, models = compute_part(stack, job.scenario, report, tracks, checkpoint)
    notes.extend(tracks.lost)
    if checkpoint is not None and checkpoint.refusal:
        notes.append(f"{checkpoint.path}: {checkpoint.refusal}; its rounds were computed again")
    if models is not None:
        trained.write(models, store.get_path(MODELS, stack.name), job.scenario)
    write_part(part, store.get_path(PARTS, stack.name))
    store.forget(stack.name)


def _format_error(error: Exception) -> str:
    """Put the error in a line; of one that speaks to the user return the text, all of it."""
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _format_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


Execute = Callable[[Sequence[Job], Report, bool], Iterable[Outcome]]
"""Carries out jobs in some order and gives their outcomes as they come.

The last argument: whether to wait for stacks that another program computes.
"""


class FailedStacks(Exception):
    """Stacks of a sweep that failed, with the reasons; the others are finished."""


Progress = Callable[[int, int, str], None]
"""Called with (rounds done, rounds in all, note)."""


class Meter:
    """Add up what stacks report, in whatever order they run.

    Parameters
    ----------
    stacks : all of a sweep.
    finished : names of those that were finished before.
    progress : is called when there is something new.
    """

    def __init__(
        self, stacks: Sequence[Stack], finished: Iterable[str], progress: Progress | None
    ) -> None:
        self._progress = progress
        self._rounds = {stack.name: stack.scenario.training.rounds for stack in stacks}
        self._finished: Set[str] = set(finished)
        self._done = {
            name: rounds if name in self._finished else 0 for name, rounds in self._rounds.items()
        }

    def finish(self, stack: str) -> None:
        """Record that a stack is finished."""
        self.report(stack, self._rounds[stack])
        self._finished |= {stack}

    def report(self, stack: str, done: int) -> None:
        """Record that a stack has done so many of its rounds."""
        if stack in self._finished or done <= self._done[stack]:
            return  # told already
        self._done[stack] = done
        self.report_progress()

    def report_progress(self) -> None:
        """Report the progress of the stacks; an exception of the callback propagates."""
        if self._progress is not None:
            stacks = len(self._rounds)
            current = min(stacks, len(self._finished) + 1)
            note = f"stack {current} of {stacks}"
            self._progress(sum(self._done.values()), sum(self._rounds.values()), note)


def run_here(jobs: Sequence[Job], report: Report, waits: bool) -> Iterator[Outcome]:
    """Carry out jobs in this program, in order."""
    for job in jobs:
        yield run_job(job, report, waits)


def run_jobs(
    jobs: Sequence[Job], execute: Execute, meter: Meter, tell: Callable[[str], None]
) -> list[Job]:
    """Carry out all jobs, and return those that memory was too short for.

    Those that fail do not harm the others. What another program computes is waited for at the end.

    tell: called with what is worth knowing.

    Raises WriteError at once where the disk does not take a result; the UserError that all jobs
    failed with; FailedStacks. The error of a sweep's only stack is raised as it is.
    """
    outcomes = _attempt(jobs, execute, meter, tell)
    busy = [one.job for one in outcomes if one.state == "busy"]
    outcomes += _attempt(busy, execute, meter, tell, waits=True)
    failed = [one for one in outcomes if one.state == "failed"]
    if failed:
        order = [job.stack.name for job in jobs]
        _raise(sorted(failed, key=lambda one: order.index(one.job.stack.name)), len(jobs))
    return [one.job for one in outcomes if one.state == "short"]


def _attempt(
    jobs: Sequence[Job],
    execute: Execute,
    meter: Meter,
    tell: Callable[[str], None],
    waits: bool = False,
) -> list[Outcome]:
    """Try jobs, and return the outcomes of those that are not done."""
    left = []
    for outcome in execute(jobs, meter.report, waits) if jobs else ():
        stack = outcome.job.stack.name
        if outcome.state == "done":
            meter.finish(stack)
            for note in outcome.notes:
                tell(note)
            continue
        if outcome.kind == "write":
            raise WriteError(outcome.message)
        left.append(outcome)
        if outcome.state == "failed":
            meter.report_progress()  # the error may be what became of a Ctrl-C
            path = Store(outcome.job.folder).get_path(FAILURES, stack)
            write_text(path, outcome.trace, replaces=True)
    return left


def _raise(failed: Sequence[Outcome], jobs: int) -> None:
    first = failed[0]
    if jobs == 1 and first.error is not None:
        raise first.error
    texts = {outcome.message for outcome in failed if outcome.kind == "user"}
    if len(failed) == jobs and len(texts) == 1 and all(one.kind == "user" for one in failed):
        raise UserError(first.message) from first.error
    lines = [f"{len(failed)} of {jobs} stacks failed; the others are finished and kept"]
    for outcome in failed:
        stack = outcome.job.stack
        trace = Store(outcome.job.folder).get_path(FAILURES, stack.name)
        said = outcome.message.partition("\n")[0]
        lines.append(f"  {_format_points(stack.points)}: {said} ({trace})")
    lines.append("the same command tries the failed ones again")
    raise FailedStacks("\n".join(lines)) from first.error


def _format_points(points: Sequence[Point]) -> str:
    """Name the first point of a stack by its coordinates, and count the others."""
    if not points[0].coords:
        return "the scenario"
    shown = [f"{name}={shorten(str(value), 40)}" for name, value in points[0].coords.items()]
    return ", ".join(shown) + (f" and {len(points) - 1} more" if len(points) > 1 else "")
