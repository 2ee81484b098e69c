"""A rehearsal of a run on synthetic samples, which finds errors before the data are read.

A point is assembled as in a run, with synthetic samples of the shape that the data set declares.
Its first round runs with few devices and little work. The rehearsal reports an error with the same
sentence as a run. It cannot know

- the samples: missing or damaged files, labels and users, and the random partition of the samples
  over devices; for a user-defined data set also the shape, and so whether model and method fit it;
- the machine of the run: a GPU, memory, a disk;
- later events: a user-defined function that fails in some round, devices that never become
  available.

`otafl.preflight.small_round` tries the first of these, and all user-defined functions in a round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.core.settings import Settings
from otafl.data import synthetic
from otafl.data.device_splits import get_declared_counts, split_parts
from otafl.data.loading import get_declared_shape
from otafl.data.sample_assignment import SampleAssignment
from otafl.engine.assembly import Parts, assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.results.dataset import to_dataset
from otafl.running.memory import check_channel
from otafl.scenario import Point, Scenario
from otafl.scenario.keys import iterate_custom_sections
from otafl.scenario.sections import DevicesSettings, EngineSettings, OutputSettings
from otafl.user_code import loading
from otafl.user_code.custom_part import CustomPart

MAX_DEVICES = 1000
"""Largest number of devices for which a point is assembled."""

NUM_PARTICIPANTS = 2
"""Participants, and samples in a minibatch, of the rehearsed round."""

COHORT_SECTIONS = ("data", "model", "algorithm")
"""Sections whose parts see only the participants, not the population."""

SMALL_REALS = 2**24
"""Bound on the numbers in the models of all devices, up to which a point is assembled only once."""

UNKNOWN_SAMPLES = 10**12
"""Number of samples of a data set of unknown size."""


def find_problems(scenario: Scenario, fits: bool = True) -> list[Problem]:
    """Return the errors that would stop a run of a point.

    These are all errors of the modules that it names and of its data partition. If there are none,
    it is the first error of its assembly or first round.

    fits: whether this machine has enough memory; otherwise the point is not assembled.
    """
    attempts = [section.find_function for _, section in iterate_custom_sections(scenario)]
    attempts += [
        scenario.track.check_ready,
        lambda: check_channel(scenario),
        lambda: _check_partition(scenario),
    ]
    found = [problem for one in attempts if (problem := catch_problem(one)) is not None]
    if fits and not found and get_declared_shape(scenario.data) is not None:
        first = catch_problem(lambda: _run_first_round(scenario))
        found += [] if first is None else [first]
    return found


def catch_problem(attempt: Callable[[], Any]) -> Problem | None:
    """Return the UserError of an attempt, or the error of user-defined code, as a problem.

    Any other error may be due to the synthetic samples, and says nothing about a run.
    """
    try:
        attempt()
    except Exception as raised:
        error = loading.explain_error(raised)
        return to_problem(error) if isinstance(error, UserError) else None
    return None


def to_problem(error: UserError) -> Problem:
    """Return an error as the problem of the key that its sentence begins with."""
    key = re.match(r"[a-z_]+(\.[a-z_]+)*(?=[:\[])", str(error))
    return Problem(str(error), tuple(key[0].split(".")) if key else (), _OTHERS)


_OTHERS = tuple((name,) for name in ("data", "model", "algorithm", "codec", "transport", "devices"))


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


def _run_first_round(scenario: Scenario) -> None:
    """Assemble a point, run its first round with few participants and little work, and measure it.

    Devices that may be absent, slow or faulty, several servers and large populations are assembled,
    and measured before the first round, but left out of it: a small copy runs it.
    """
    training = scenario.training
    less = {
        "local_steps": 1,
        "local_epochs": None,
        "batch_size": min(training.batch_size, NUM_PARTICIPANTS),
        "eval_samples": NUM_PARTICIPANTS,
        "fine_tune_steps": min(training.fine_tune_steps, 1),
        "duration_s": None,
        "stop_at": None,
    }
    neutral = {"engine": EngineSettings(device="cpu", dtype=scenario.engine.dtype)}
    count = min(scenario.devices.count, MAX_DEVICES)
    small = {
        "devices": DevicesSettings(count=count, participants=min(count, NUM_PARTICIPANTS)),
        "training": training.model_copy(update=less),
        "faults": type(scenario.faults)(),
        "topology": registry.load_settings_class("topology", "star")(),
        "output": OutputSettings(),
    }
    devices = scenario.devices.model_copy(update={"count": count})
    whole = scenario.model_copy(update=neutral | {"devices": devices})
    alike = _is_as_small(whole, small)
    less_work = whole.model_copy(update={"training": small["training"]})
    # of the assembled parts, only the samples depend on the amount of work
    parts = _assemble(less_work if alike else whole)
    fits = parts.model.num_params * count <= SMALL_REALS
    if alike and fits:
        parts = replace(parts, scenario=whole.model_copy(update=small))
    else:
        if fits:
            Recorder(Engine(replace(parts, scenario=less_work)), 1, 1).take_record(0, 0.0)
        own = [
            path for path, section in iterate_custom_sections(scenario) if section.affects_results
        ]
        if all(path[0] in COHORT_SECTIONS for path in own):  # other parts may need all devices
            small["devices"] = DevicesSettings(count=min(count, NUM_PARTICIPANTS))
        parts = _assemble(scenario.model_copy(update=neutral | small))
    engine = Engine(parts)
    recorder = Recorder(engine, 1, 1)
    recorder.take_record(0, 0.0)
    engine.run_round(0)
    recorder.take_record(1, 0.0)
    to_dataset(recorder.record(True), [Point(0, {}, parts.scenario)], parts.scenario)


def _is_as_small(scenario: Scenario, small: Mapping[str, Settings]) -> bool:
    """Return whether a small copy differs only in the numbers of participants and of steps."""
    devices = scenario.devices
    plain = DevicesSettings(count=devices.count, participants=devices.participants)
    return devices == plain and all(
        getattr(scenario, section) == small[section] for section in ("faults", "topology")
    )


def _assemble(scenario: Scenario) -> Parts:
    return assemble([Point(0, {}, scenario)], [0], synthetic.build_synthetic)
