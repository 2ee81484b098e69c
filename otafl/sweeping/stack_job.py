"""Run one stack of a folder, from its points to its finished file: what a worker does."""

from __future__ import annotations

import contextlib
import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from otafl.core.errors import UserError, WriteError, wrap_write_errors
from otafl.core.suggestions import format_count
from otafl.results import models as trained
from otafl.results import origins, plain_data
from otafl.results.dataset import append_trials, combine, to_dataset
from otafl.results.environment import get_versions
from otafl.results.files import write_part
from otafl.results.models import TrainedModels
from otafl.results.record import Record
from otafl.running.checkpoints import Checkpoint
from otafl.running.memory import is_out_of_memory
from otafl.running.run_tracking import TrackingOutput
from otafl.running.stack_run import Progress, run_stack
from otafl.scenario import Scenario, compute_scenario_hash, hash_custom_sources
from otafl.sweeping import locks
from otafl.sweeping.folder import Folder
from otafl.sweeping.growing import include_earlier_trials, read_earlier_part
from otafl.sweeping.joining import Piece, join_records
from otafl.sweeping.plan_file import replace_batches
from otafl.sweeping.planning import Batch, Stack
from otafl.sweeping.resuming import find_differences, hash_inputs
from otafl.user_code import loading, sources
from otafl.user_code.sources import Sources

if TYPE_CHECKING:
    import xarray as xr

Report = Callable[[int, int, int], None]
"""Called with (number of the stack, its rounds done, its rounds in all)."""

REPORT_EVERY_S = 0.5
"""A worker reports no more often."""


@dataclass(frozen=True)
class Job:
    """Order to compute a stack of a sweep.

    folder: that all workers see, by this absolute path. checkpoint_every: rounds, 0 for never.
    sources: of user-defined modules that the stack names, as the client has them. versions: of
    the programs that the client runs. result: the file of a run whose only stack this is, which is
    written at once, instead of a part that would be read and written again. tracks: the folder
    of the runs that a tracker follows; None: they are not tracked.
    """

    scenario: Scenario
    stack: Stack
    folder: Path
    checkpoint_every: int = 0
    sources: Sources = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=get_versions)
    result: Path | None = None
    tracks: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job.

    busy: another program is at it. kind: of the error, "write" where the disk is the cause, "user"
    where the user can mend it. error: that was raised, if it was here. notes: what is worth knowing
    of a job that is done.
    """

    job: Job
    state: Literal["done", "busy", "failed"]
    kind: Literal["", "user", "write", "other"] = ""
    message: str = ""
    trace: str = ""
    error: Exception | None = None
    notes: tuple[str, ...] = ()


def run_job(job: Job, report: Report, keep_interrupted: bool = False) -> Outcome:
    """Compute the job's stack, unless its file is there, or another program is at it.

    keep_interrupted: on Ctrl-C write the partial record to `interrupted_path.nc`. Errors are
    outcomes; KeyboardInterrupt propagates.
    """
    folder, number = Folder(job.folder), job.stack.number
    notes: list[str] = []
    try:
        if job.versions != get_versions():
            raise UserError(
                f"this worker has {_format_versions(get_versions())}, the client "
                f"{_format_versions(job.versions)}; install the same versions everywhere"
            )
        _check_sources(job)
        with locks.hold_lock(folder.get_lock_path(number), wait=False):
            _check_plan(folder, job.scenario)
            if not folder.has(job.stack, job.scenario, job.sources):
                _compute(job, report, keep_interrupted, notes)
    except locks.Busy:
        return Outcome(job, "busy")
    except Exception as raised:
        error = loading.explain_error(raised)
        kind: Literal["user", "write", "other"] = "other"
        if isinstance(error, UserError):
            kind = "write" if isinstance(error, WriteError) else "user"
        trace = "".join(traceback.format_exception(error))
        return Outcome(job, "failed", kind, _format_error(error), trace, error)
    return Outcome(job, "done", notes=tuple(notes))


def run_remote_job(job: Job, send: Report) -> Outcome:
    """Do a job in a worker, as `run_job` does; what it returns can be sent from program to program.

    send: called as `report` is, now and then.
    """
    sent = 0.0

    def report(*rounds: int) -> None:
        nonlocal sent
        if time.monotonic() - sent >= REPORT_EVERY_S:
            sent = time.monotonic()
            send(*rounds)

    return replace(run_job(job, report), error=None)


def _check_plan(folder: Folder, scenario: Scenario) -> None:
    """Raise UserError if another program has changed what the folder is of."""
    if folder.plan.is_file() and not folder.holds_scenario(scenario):
        raise UserError(
            f"{folder.path}: is of another scenario by now, as another program has made it; give "
            "another place with --out"
        )


def _check_sources(job: Job) -> None:
    """Raise UserError unless the user's own code is here what it is at the client."""
    sources.check_unchanged()
    sources.record(job.sources)
    other = sources.list_changed(job.sources, hash_custom_sources(job.stack.scenario))
    if other:
        raise UserError(
            f"{', '.join(other)}: changed while the sweep ran, or differs between client and "
            "workers; with the same files everywhere, the same command continues"
        )


def _compute(job: Job, report: Report, keep_interrupted: bool, notes: list[str]) -> None:
    folder, stack = Folder(job.folder), job.stack

    def tell(done: int, total: int) -> None:
        report(stack.number, round(done / total * job.stack.num_rounds), job.stack.num_rounds)

    def rebatch(batches: list[Batch]) -> None:
        replace_batches(job.folder, stack, batches)

    earlier = _read_earlier(job, notes)
    if stack.earlier and earlier is None:
        stack = replace_batches(job.folder, include_earlier_trials(stack))

    record = run_batches(stack, tell, partial(_run_stored_batch, job, notes), rebatch)
    dataset = to_part(record, stack, job.scenario).assign_attrs(stacks=[stack.number])
    models = record.models
    if record.complete and earlier is not None:
        later = dataset.isel(trial=slice(stack.earlier, None))
        dataset = append_trials(earlier.part, later)
        if models is not None and earlier.models is not None:
            models = trained.join([earlier.models, models])
    if not record.complete:
        if keep_interrupted:
            write_part(dataset, folder.interrupted_path)
        raise KeyboardInterrupt
    if models is not None:
        trained.write(models, folder.get_models_path(stack.number), job.scenario)
    if job.result is None:
        write_part(dataset, folder.get_part_path(stack.number))
    else:
        write_part(combine([dataset]), job.result)
        with wrap_write_errors(folder.path):
            folder.get_part_path(stack.number).unlink(
                missing_ok=True
            )  # one that could not be taken
    folder.forget(stack.number)


class _Earlier(NamedTuple):
    """Earlier trials of a stack that has got more."""

    part: xr.Dataset
    models: TrainedModels | None


def _read_earlier(job: Job, notes: list[str]) -> _Earlier | None:
    """Return the earlier trials of a stack, or None without usable ones.

    Unusable trials are noted and computed again, as trials of a point are not mixed.
    """
    folder, stack = Folder(job.folder), job.stack
    if not stack.earlier or not folder.get_earlier_path(stack.number).is_file():
        return None
    try:
        part = read_earlier_part(folder, stack, job.scenario)
        models = None
        if job.scenario.output.save_models:
            models, _ = trained.read(folder.get_earlier_path(stack.number).with_suffix(".pt"))
        inputs = hash_inputs(stack.scenario)
        del inputs["otafl"]  # its version says enough
        why = set[str]()
        for origin in origins.read(part.attrs, part["point_index"].values):
            why |= find_differences(origin, job.sources, inputs, job.versions)
        if not why:
            return _Earlier(part, models)
        said = f"made with other {', '.join(sorted(why))}"
    except UserError as error:
        said = str(error)
    notes.append(
        f"{folder.path}: {format_count(stack.earlier, 'earlier trial')} of stack "
        f"{stack.number + 1} computed again ({said})"
    )
    return None


def to_part(record: Record, stack: Stack, scenario: Scenario) -> xr.Dataset:
    """Return the record of a stack as a part of the sweep."""
    return to_dataset(record, stack.points, scenario, hash_inputs(stack.scenario))


def run_batches(
    stack: Stack,
    tell: Progress,
    each: Callable[[Batch, Progress], Record] | None = None,
    rebatch: Callable[[list[Batch]], None] = lambda batches: None,
    tracks: TrackingOutput | None = None,
) -> Record:
    """Return the record of a stack, run batch by batch; incomplete after Ctrl-C.

    A batch that memory is short for is halved, and so on. tell: called with rounds done and in all.
    each: runs a batch, if not `run_stack` with these tracks. rebatch: called with the stack's
    batches when they change.
    """
    pieces: list[Piece] = []
    waiting = list(stack.batches)
    size = sum(batch.num_rows for batch in waiting)
    while waiting:
        batch = waiting[0]
        before = sum(one.num_rows for one, _ in pieces)

        def report_progress(
            done: int, total: int, batch: Batch = batch, before: int = before
        ) -> None:
            share = (before + batch.num_rows * done / total) / size
            tell(round(share * stack.num_rounds), stack.num_rounds)

        try:
            record = (
                each(batch, report_progress)
                if each
                else _run(stack, batch, report_progress, tracks=tracks)
            )
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if batch.num_rows == 1:
                raise UserError(
                    "engine.memory_gb: there is no memory for a single trial "
                    f"({_format_error(error)}); use a smaller engine.chunk_mb, "
                    "engine.device_state: disk, or fewer workers"
                ) from error
        else:
            pieces.append((waiting.pop(0), record))
            if not record.complete:
                break
            continue
        waiting[:1] = batch.split_in_half()
        rebatch([one for one, _ in pieces] + waiting)
        _free_memory()  # only now that the error, which holds on to what failed, is gone
    return join_records(pieces, len(stack.points), stack.scenario.trials)


def _run(
    stack: Stack,
    batch: Batch,
    tell: Progress,
    checkpoint: Checkpoint | None = None,
    tracks: TrackingOutput | None = None,
) -> Record:
    points = [stack.points[place] for place in batch.points]
    return run_stack(points, tell, batch.trials, checkpoint, tracks)


def _run_stored_batch(job: Job, notes: list[str], batch: Batch, tell: Progress) -> Record:
    """Return the record of a batch, which is kept where a stack has several.

    The notes get rounds that were saved but computed again, and losses of a tracker.
    """
    folder, number = Folder(job.folder), job.stack.number
    whole = batch.num_rows == len(job.stack.points) * job.scenario.trials
    finished = folder.get_record_path(number, batch)
    identity = {
        "scenario": compute_scenario_hash(job.scenario),
        "versions": job.versions,
        "sources": job.sources,
    }
    with contextlib.suppress(Exception):  # not there, or damaged: it is computed again
        kept = plain_data.load(finished)
        if kept["identity"] == identity:
            return Record.from_state_dict(kept["record"], (len(batch.points), len(batch.trials)))
    checkpoint = None
    if job.checkpoint_every:
        checkpoint = Checkpoint(folder.get_checkpoint_path(number, batch), job.checkpoint_every)
    tracks = None if job.tracks is None else TrackingOutput(job.tracks)
    record = _run(job.stack, batch, tell, checkpoint, tracks)
    notes.extend(tracks.lost if tracks is not None else ())
    if checkpoint is not None and checkpoint.refusal:
        notes.append(f"{checkpoint.path}: {checkpoint.refusal}; its rounds were computed again")
    if record.complete and not whole:
        plain_data.save({"identity": identity, "record": record.state_dict()}, finished)
    if record.complete and checkpoint is not None and not whole:
        checkpoint.remove()
    return record


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _format_error(error: Exception) -> str:
    """Put the error in a line; of one that speaks to the user return the text, all of it."""
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _format_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
