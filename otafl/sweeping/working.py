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

from otafl.core.errors import UserError, WriteError, changing
from otafl.core.words import counted
from otafl.results import models as trained
from otafl.results import origins, plain
from otafl.results.dataset import combine, to_dataset, with_trials
from otafl.results.environment import versions
from otafl.results.files import write_part
from otafl.results.models import Trained
from otafl.results.record import Record
from otafl.running.checkpoints import Checkpoint
from otafl.running.following import Tracks
from otafl.running.memory import ran_out_of_memory
from otafl.running.running import Progress, run_stack
from otafl.scenario import Scenario, scenario_hash, sources_of
from otafl.sweeping import locks
from otafl.sweeping.folder import Folder
from otafl.sweeping.growing import all_trials, earlier_part
from otafl.sweeping.joining import Piece, joined
from otafl.sweeping.plan_file import rebatched
from otafl.sweeping.planning import Batch, Stack
from otafl.sweeping.resuming import differing, inputs_of
from otafl.user_code import blame, sources
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
    versions: dict[str, str] = field(default_factory=versions)
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


def work(job: Job, report: Report, keep_interrupted: bool = False) -> Outcome:
    """Compute the job's stack, unless its file is there, or another program is at it.

    keep_interrupted: on Ctrl-C write the partial record to `interrupted.nc`. Errors are outcomes;
    KeyboardInterrupt propagates.
    """
    folder, number = Folder(job.folder), job.stack.number
    notes: list[str] = []
    try:
        if job.versions != versions():
            raise UserError(
                f"this worker has {_listed(versions())}, the client {_listed(job.versions)}; "
                "install the same versions everywhere"
            )
        _check_sources(job)
        with locks.held(folder.lock(number), wait=False):
            _check_plan(folder, job.scenario)
            if not folder.has(job.stack, job.scenario, job.sources):
                _compute(job, report, keep_interrupted, notes)
    except locks.Busy:
        return Outcome(job, "busy")
    except Exception as raised:
        error = blame.told(raised)
        kind: Literal["user", "write", "other"] = "other"
        if isinstance(error, UserError):
            kind = "write" if isinstance(error, WriteError) else "user"
        trace = "".join(traceback.format_exception(error))
        return Outcome(job, "failed", kind, _message(error), trace, error)
    return Outcome(job, "done", notes=tuple(notes))


def work_elsewhere(job: Job, send: Report) -> Outcome:
    """Do a job in a worker, as `work` does; what it returns can be sent from program to program.

    send: called as `report` is, now and then.
    """
    sent = 0.0

    def report(*rounds: int) -> None:
        nonlocal sent
        if time.monotonic() - sent >= REPORT_EVERY_S:
            sent = time.monotonic()
            send(*rounds)

    return replace(work(job, report), error=None)


def _check_plan(folder: Folder, scenario: Scenario) -> None:
    """Raise UserError if another program has changed what the folder is of."""
    if folder.plan.is_file() and not folder.is_of(scenario):
        raise UserError(
            f"{folder.path}: is of another scenario by now, as another program has made it; give "
            "another place with --out"
        )


def _check_sources(job: Job) -> None:
    """Raise UserError unless the user's own modules are here what they are at the client."""
    sources.refresh()
    other = sources.changed(job.sources, sources_of(job.stack.scenario))
    if other:
        raise UserError(
            f"{', '.join(other)}: changed while the sweep ran, or differs between client and "
            "workers; with the same files everywhere, the same command continues"
        )


def _compute(job: Job, report: Report, keep_interrupted: bool, notes: list[str]) -> None:
    folder, stack = Folder(job.folder), job.stack

    def tell(done: int, total: int) -> None:
        report(stack.number, round(done / total * job.stack.rounds), job.stack.rounds)

    def rebatch(batches: list[Batch]) -> None:
        rebatched(job.folder, stack, batches)

    earlier = _earlier(job, notes)
    if stack.earlier and earlier is None:
        stack = rebatched(job.folder, all_trials(stack))

    record = record_of(stack, tell, partial(_kept_batch, job, notes), rebatch)
    dataset = part_of(record, stack, job.scenario).assign_attrs(stacks=[stack.number])
    models = record.models
    if record.complete and earlier is not None:
        later = dataset.isel(trial=slice(stack.earlier, None))
        dataset = with_trials(earlier.part, later)
        if models is not None and earlier.models is not None:
            models = trained.join([earlier.models, models])
    if not record.complete:
        if keep_interrupted:
            write_part(dataset, folder.interrupted)
        raise KeyboardInterrupt
    if models is not None:
        trained.write(models, folder.models(stack.number), job.scenario)
    if job.result is None:
        write_part(dataset, folder.part(stack.number))
    else:
        write_part(combine([dataset]), job.result)
        with changing(folder.path):
            folder.part(stack.number).unlink(missing_ok=True)  # one that could not be taken
    folder.forget(stack.number)


class _Earlier(NamedTuple):
    """Earlier trials of a stack that has got more."""

    part: xr.Dataset
    models: Trained | None


def _earlier(job: Job, notes: list[str]) -> _Earlier | None:
    """Return the earlier trials of a stack, or None without usable ones.

    Unusable trials are noted and computed again, as trials of a point are not mixed.
    """
    folder, stack = Folder(job.folder), job.stack
    if not stack.earlier or not folder.earlier(stack.number).is_file():
        return None
    try:
        part = earlier_part(folder, stack, job.scenario)
        models = None
        if job.scenario.output.save_models:
            models, _ = trained.read(folder.earlier(stack.number).with_suffix(".pt"))
        inputs = inputs_of(stack.scenario)
        del inputs["otafl"]  # its version says enough
        why = set[str]()
        for origin in origins.read(part.attrs, part["point_index"].values):
            why |= differing(origin, job.sources, inputs, job.versions)
        if not why:
            return _Earlier(part, models)
        said = f"made with other {', '.join(sorted(why))}"
    except UserError as error:
        said = str(error)
    notes.append(
        f"{folder.path}: {counted(stack.earlier, 'earlier trial')} of stack {stack.number + 1} "
        f"computed again ({said})"
    )
    return None


def part_of(record: Record, stack: Stack, scenario: Scenario) -> xr.Dataset:
    """Return the record of a stack as a part of the sweep."""
    return to_dataset(record, stack.points, scenario, inputs_of(stack.scenario))


def record_of(
    stack: Stack,
    tell: Progress,
    each: Callable[[Batch, Progress], Record] | None = None,
    rebatch: Callable[[list[Batch]], None] = lambda batches: None,
    tracks: Tracks | None = None,
) -> Record:
    """Return the record of a stack, run batch by batch; incomplete after Ctrl-C.

    A batch that memory is short for is halved, and so on. tell: called with rounds done and in all.
    each: runs a batch, if not `run_stack` with these tracks. rebatch: called with the stack's
    batches when they change.
    """
    pieces: list[Piece] = []
    waiting = list(stack.batches)
    size = sum(batch.size for batch in waiting)
    while waiting:
        batch = waiting[0]
        before = sum(one.size for one, _ in pieces)

        def told(done: int, total: int, batch: Batch = batch, before: int = before) -> None:
            share = (before + batch.size * done / total) / size
            tell(round(share * stack.rounds), stack.rounds)

        try:
            record = each(batch, told) if each else _run(stack, batch, told, tracks=tracks)
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            if batch.size == 1:
                raise UserError(
                    "engine.memory_gb: there is no memory for a single trial "
                    f"({_message(error)}); use a smaller engine.chunk_mb, "
                    "engine.device_state: disk, or fewer workers"
                ) from error
        else:
            pieces.append((waiting.pop(0), record))
            if not record.complete:
                break
            continue
        waiting[:1] = batch.halves()
        rebatch([one for one, _ in pieces] + waiting)
        _free()  # only now that the error, which holds on to what failed, is gone
    return joined(pieces, len(stack.points), stack.scenario.trials)


def _run(
    stack: Stack,
    batch: Batch,
    tell: Progress,
    checkpoint: Checkpoint | None = None,
    tracks: Tracks | None = None,
) -> Record:
    points = [stack.points[place] for place in batch.points]
    return run_stack(points, tell, batch.trials, checkpoint, tracks)


def _kept_batch(job: Job, notes: list[str], batch: Batch, tell: Progress) -> Record:
    """Return the record of a batch, which is kept where a stack has several.

    The notes get rounds that were saved but computed again, and losses of a tracker.
    """
    folder, number = Folder(job.folder), job.stack.number
    whole = batch.size == len(job.stack.points) * job.scenario.trials
    finished = folder.record(number, batch)
    identity = {
        "scenario": scenario_hash(job.scenario),
        "versions": job.versions,
        "sources": job.sources,
    }
    with contextlib.suppress(Exception):  # not there, or damaged: it is computed again
        kept = plain.load(finished)
        if kept["identity"] == identity:
            return Record.of_plain(kept["record"], (len(batch.points), len(batch.trials)))
    checkpoint = None
    if job.checkpoint_every:
        checkpoint = Checkpoint(folder.checkpoint(number, batch), job.checkpoint_every)
    tracks = None if job.tracks is None else Tracks(job.tracks)
    record = _run(job.stack, batch, tell, checkpoint, tracks)
    notes.extend(tracks.lost if tracks is not None else ())
    if checkpoint is not None and checkpoint.refused:
        notes.append(f"{checkpoint.path}: {checkpoint.refused}; its rounds were computed again")
    if record.complete and not whole:
        plain.save({"identity": identity, "record": record.plain()}, finished)
    if record.complete and checkpoint is not None and not whole:
        checkpoint.remove()
    return record


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _message(error: Exception) -> str:
    """Put the error in a line; of one that speaks to the user return the text, all of it."""
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
