"""Run one stack of a folder, from its points to its finished file: what a worker does."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
import xarray as xr

from otafl import data
from otafl.core.errors import UserError, WriteError
from otafl.results import models as trained
from otafl.results.dataset import Record, to_dataset
from otafl.results.files import write_part
from otafl.results.origins import get_versions
from otafl.running.checkpoints import Checkpoint
from otafl.running.memory import is_out_of_memory
from otafl.running.run_tracking import TrackingOutput
from otafl.running.stack_run import run_stack
from otafl.scenario import Scenario, hash_named_files
from otafl.sweeping.planning import Stack, hash_files
from otafl.sweeping.store import Busy, Store
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
        _check_same_program(job)
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


def run_rows(
    stack: Stack, report: Report, tracks: TrackingOutput, checkpoint: Checkpoint | None = None
) -> Record:
    """Run a stack, and return its record."""

    def tell(done: int, total: int) -> None:
        report(stack.name, done)

    return run_stack(stack.points, tell, stack.trials, checkpoint, tracks)


def to_part(record: Record, stack: Stack, scenario: Scenario) -> xr.Dataset:
    """Return the record of a stack as a part of the sweep."""
    inputs = hash_inputs(stack.scenario)
    return to_dataset(record, stack.points, scenario, inputs, stack.trials, stack.names)


def hash_inputs(scenario: Scenario) -> dict[str, str]:
    """Return hashes of what a stack's numbers depend on beside versions and own modules."""
    found = {"otafl": hash_otafl(), "data": data.compute_fingerprint(scenario.data)}
    return found | hash_named_files(scenario)


def make_short_error(error: Exception) -> UserError:
    """Return the error of a single trial that there is no memory for."""
    return UserError(
        f"engine.memory_gb: there is no memory for a single trial ({_format_error(error)}); use a "
        "smaller engine.chunk_mb, or fewer workers"
    )


def free_memory() -> None:
    """Free the memory of a stack that is finished or failed."""
    gc.collect()  # trick: its tensors lie in cycles, and the collector counts objects, not bytes
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _check_same_program(job: Job) -> None:
    """Raise UserError unless programs and the user's code are here what they are at the client."""
    if job.versions != get_versions():
        raise UserError(
            f"this worker has {_format_versions(get_versions())}, the client "
            f"{_format_versions(job.versions)}; install the same versions everywhere"
        )
    sources.check_unchanged()
    sources.record(job.sources)
    other = sources.list_changed(job.sources, hash_files(job.stack.scenario))
    if other:
        raise UserError(
            f"{', '.join(other)}: changed while the sweep ran, or differs between client and "
            "workers; with the same files everywhere, the same command continues"
        )


def _compute(job: Job, store: Store, report: Report, notes: list[str]) -> None:
    stack, tracks = job.stack, TrackingOutput(job.tracks)
    checkpoint = None
    if job.checkpoint_every:
        checkpoint = Checkpoint(store.get_checkpoint_path(stack.name), job.checkpoint_every)
    record = run_rows(stack, report, tracks, checkpoint)
    notes.extend(tracks.lost)
    if checkpoint is not None and checkpoint.refusal:
        notes.append(f"{checkpoint.path}: {checkpoint.refusal}; its rounds were computed again")
    part = to_part(record, stack, job.scenario)
    if record.models is not None:
        trained.write(record.models, store.get_models_path(stack.name), job.scenario)
    write_part(part, store.get_part_path(stack.name))
    store.forget(stack.name)


def _format_error(error: Exception) -> str:
    """Put the error in a line; of one that speaks to the user return the text, all of it."""
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _format_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
