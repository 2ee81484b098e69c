"""A rehearsal of a run: one small round, which trains, transmits and measures as a run does.

A few devices train on a few samples and transmit; the result is evaluated and recorded, and nothing
is written. An error is reported with the sentence of a run. On synthetic samples, of the shape that
the data set declares, the rehearsal cannot know

- the samples: missing or damaged files, labels and users, and the random partition of the samples
  over devices; for a user-defined data set also the shape, and so whether model and method fit it;
- the machine of the run: a GPU, memory, a disk.

A dry run reads the samples. Neither knows later events: a user-defined function that fails in some
round, devices that never become available.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from otafl import data, models
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.data.build import build_synthetic
from otafl.data.device_splits import get_declared_counts, split_parts
from otafl.data.loading import DataShape, get_declared_shape, read_shape
from otafl.data.partitions.base import SampleAssignment
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.results.dataset import to_dataset
from otafl.scenario import Point, Scenario
from otafl.scenario.keys import iterate_custom_sections
from otafl.scenario.schema import EngineSettings
from otafl.user_code import loading
from otafl.user_code.custom_part import CustomPart

MAX_DEVICES = 1000
PARTICIPANTS = 4
LOCAL_STEPS = 2
BATCH = 4
TESTED = 100
"""Bounds of a rehearsal: devices, participants, their work, and test samples."""

MAX_NUMBERS = 2**24
"""Bound on the numbers in the models of all devices of a rehearsal."""

COHORT_SECTIONS = ("data", "model", "algorithm")
"""Sections whose parts see only the participants, not the population."""

UNKNOWN_SAMPLES = 10**12
"""Number of samples of a data set of unknown size."""

_OTHERS = tuple((name,) for name in ("data", "model", "algorithm", "codec", "transport", "devices"))


def find_problems(scenario: Scenario, fits: bool = True) -> list[Problem]:
    """Return the errors that would stop a run of a point, found before its data are read.

    These are all errors of the modules that it names and of its data partition. If there are none,
    it is the first error of a rehearsal on synthetic samples.

    fits: whether this machine has enough memory; otherwise no round is rehearsed.
    """
    attempts = [section.find_function for _, section in iterate_custom_sections(scenario)]
    attempts += [
        scenario.track.check_ready,
        lambda: _check_partition(scenario),
    ]
    found = [problem for one in attempts if (problem := catch_problem(one)) is not None]
    if fits and not found and (shape := get_declared_shape(scenario.data)) is not None:
        on_cpu = EngineSettings(device="cpu", dtype=scenario.engine.dtype)
        here = scenario.model_copy(update={"engine": on_cpu})
        first = catch_problem(lambda: _run_round(here, shape, build_synthetic))
        found += [] if first is None else [first]
    return found


def find_problems_on_data(scenario: Scenario, fits: bool = True) -> list[Problem]:
    """Return the first error of a rehearsal on the samples of a scenario.

    fits: whether this machine has enough memory; otherwise no round is rehearsed. Errors of otafl
    itself propagate.
    """
    found = catch_problem(scenario.track.check_ready)
    if found is None and fits:
        try:
            _run_round(scenario, read_shape(scenario.data), data.build)
        except Exception as raised:
            error = loading.explain_error(raised)
            if not isinstance(error, UserError):
                raise
            found = _to_problem(error)
    return [] if found is None else [found]


def catch_problem(attempt: Callable[[], Any]) -> Problem | None:
    """Return the UserError of an attempt, or the error of user-defined code, as a problem.

    Any other error may be due to the synthetic samples, and says nothing about a run.
    """
    try:
        attempt()
    except Exception as raised:
        error = loading.explain_error(raised)
        return _to_problem(error) if isinstance(error, UserError) else None
    return None


def reduce_scenario(scenario: Scenario, shape: DataShape) -> Scenario:
    """Return a scenario of one round and one trial with few participants and little work.

    The population stays, up to a bound; of a large model it becomes the participants, unless a
    user-defined part may need all devices. shape: of the samples.
    """
    devices, training = scenario.devices, scenario.training
    count = min(devices.count, MAX_DEVICES)
    few = min(devices.participants or count, count, PARTICIPANTS)
    own = [path for path, section in iterate_custom_sections(scenario) if section.affects_results]
    if all(path[0] in COHORT_SECTIONS for path in own):
        model = models.build(scenario.model, shape.input_shape, shape.classes, scenario.loss)
        count = few if model.num_params * count > MAX_NUMBERS else count
    senders = None if devices.senders is None else min(devices.senders, few)
    less = {
        "rounds": 1,
        "local_steps": min(training.local_steps, LOCAL_STEPS),
        "local_epochs": None,
        "batch_size": min(training.batch_size, BATCH),
        "eval_every": 1,
        "eval_samples": min(training.eval_samples or TESTED, TESTED),
        "fine_tune_steps": min(training.fine_tune_steps, 1),
        "duration_s": None,
        "stop_at": None,
    }
    few_devices = {"count": count, "participants": few, "senders": senders}
    return scenario.model_copy(
        update={
            "devices": devices.model_copy(update=few_devices),
            "training": training.model_copy(update=less),
            "trials": 1,
            "sweep": {},
        }
    )


def _run_round(scenario: Scenario, shape: DataShape, build_samples: Callable[..., Any]) -> None:
    small = reduce_scenario(scenario, shape)
    points = [Point(0, {}, small)]
    engine = Engine(assemble(points, [0], build_samples))
    recorder = Recorder(engine, 1, 1)
    recorder.take_record(0, 0.0)
    engine.run_round(0)
    recorder.take_record(1, 0.0)
    to_dataset(recorder.record(), points, small)


def _to_problem(error: UserError) -> Problem:
    """Return an error as the problem of the key that its sentence begins with."""
    key = re.match(r"[a-z_]+(\.[a-z_]+)*(?=[:\[])", str(error))
    return Problem(str(error), tuple(key[0].split(".")) if key else (), _OTHERS)


def _check_partition(scenario: Scenario) -> None:
    """Partition the samples that a data set declares, by their counts only."""
    source = scenario.data
    if isinstance(source, CustomPart):
        return
    counts = get_declared_counts(source, scenario.devices.count, UNKNOWN_SAMPLES)
    counts.check()
    source.partition.check_counts(counts)
    if source.test == "per_device" and counts.samples < UNKNOWN_SAMPLES:
        sizes = np.array(source.partition.get_sizes(counts), np.int64)
        split_parts(
            SampleAssignment(np.arange(sizes.sum()), sizes), source.test_share, source.validation
        )
