"""The run of one stack of trials, from its points to the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.evaluation.trained_models import collect
from otafl.results.dataset import Record
from otafl.running.checkpoints import Checkpoint, CheckpointState
from otafl.running.memory import check_room
from otafl.running.run_tracking import RunTracking, TrackingOutput
from otafl.scenario import Point

Progress = Callable[[int, int], None]
"""Function that is called after each round with (rounds done, rounds in total)."""


def run_stack(
    points: Sequence[Point],
    progress: Progress | None = None,
    trials: Sequence[int] | None = None,
    checkpoint: Checkpoint | None = None,
    tracks: TrackingOutput | None = None,
) -> Record:
    """Run points of one stack key with all trials stacked, and return the record.

    checkpoint: the run continues from its state, and saves its state there. tracks: enables the
    scenario's tracker. Raises UserError for errors that the scenario does not show: missing data, a
    model that the algorithm cannot train.
    """
    scenario = points[0].scenario
    if scenario.engine.threads:
        torch.set_num_threads(scenario.engine.threads)
    check_room(scenario)
    numbers = list(range(scenario.trials)) if trials is None else list(trials)
    total = scenario.training.rounds
    with RunTracking(points, numbers, tracks) as following:
        recorder, done, seconds = _start_or_resume(points, numbers, checkpoint)
        engine = recorder.engine
        following.log_new_records(recorder)
        began = time.perf_counter() - seconds
        for t in range(done, total):
            if not engine.running.any():
                break
            engine.run_round(t)
            due = (t + 1) % scenario.training.eval_every == 0 or t + 1 == total
            if due or (engine.ended & engine.running).any():
                recorder.take_record(t + 1, time.perf_counter() - began)
                following.log_new_records(recorder)
            if checkpoint is not None and checkpoint.is_due(t + 1) and t + 1 < total:
                now = CheckpointState(recorder, t + 1, time.perf_counter() - began)
                checkpoint.save(now, points, numbers)
            if progress is not None:
                progress(t + 1, total)
    record = recorder.record()
    if scenario.output.save_models:
        models = collect(engine, points, numbers, recorder.rounds[-1])
        record = replace(record, models=models)
    return record


def _start_or_resume(
    points: Sequence[Point], trials: Sequence[int], checkpoint: Checkpoint | None
) -> CheckpointState:
    """Return the state of a checkpoint, or a stack before its first round."""
    kept = None if checkpoint is None else checkpoint.load(points, trials)
    if kept is not None:
        return kept
    engine = Engine(assemble(points, trials))
    if checkpoint is not None:
        engine.parts.clock.journal = []
    recorder = Recorder(engine, len(points), len(trials))
    recorder.take_record(0, 0.0)
    return CheckpointState(recorder, 0, 0.0)
