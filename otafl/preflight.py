"""Preflight: the check of a scenario before a run, and a small rehearsal of it on its data.

Every point is validated, and points of different structure are rehearsed: the data are partitioned
over all devices, and a few devices train on a few samples and transmit. The result is evaluated and
recorded, and nothing is written. An error has the sentence of a run. A rehearsal computes on the
CPU. It does not know later events, such as a user-defined function that fails in some round, or
devices that never become available.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from otafl import topology
from otafl.core.errors import AbsentDataError, UserError
from otafl.core.problems import Problem
from otafl.data import load_cached
from otafl.data.device_splits import partition_samples
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.results.dataset import to_dataset
from otafl.running.memory import bound_seconds, build_model, estimate_trial, find_shortage
from otafl.scenario import Point, Scenario, list_notes, make_stack_key
from otafl.scenario.keys import iterate_custom_sections
from otafl.scenario.loading import load_points
from otafl.scenario.schema import EngineSettings
from otafl.user_code import loading, sources

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

_OTHERS = tuple((name,) for name in ("data", "model", "algorithm", "codec", "transport", "devices"))


class Rehearsal(NamedTuple):
    """Outcome of the rehearsal of a point.

    Parameters
    ----------
    problems : Sequence of Problem
        Errors that would stop its run.
    untried : str
        What this machine lacks for a rehearsal, and the remedy; empty if nothing.
    trial_bytes : int
        Lower bound on the memory of a trial; 0 without a rehearsal, as the others.
    seconds : float
        Lower bound on the computing time of all trials.
    start_bits : int
        Bits of a broadcast of the start.
    """

    problems: Sequence[Problem] = ()
    untried: str = ""
    trial_bytes: int = 0
    seconds: float = 0.0
    start_bits: int = 0


class Report(NamedTuple):
    """A valid scenario before a run.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    points : list of Point
        Points of its sweep.
    warnings : list of str
        Valid settings that are probably not intended.
    rehearsals : list of Rehearsal
        Rehearsals of the points, in their order; those of one structure are one.
    """

    scenario: Scenario
    points: list[Point]
    warnings: list[str]
    rehearsals: list[Rehearsal]


@sources.begin_run()
def report(
    source: Scenario | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    try_fn: Callable[[Scenario], Rehearsal] | None = None,
) -> Report:
    """Check a scenario before a run.

    Parameters
    ----------
    source : Scenario, str, Path or mapping
        A scenario, or an argument of `otafl.load_scenario`.
    overrides : sequence of str, optional
        As for `otafl.load_scenario`.
    try_fn : callable, optional
        Function that tries points, such as `rehearse`. Without it they are only validated.

    Returns
    -------
    Report
        The scenario, its points, and what was found.

    Raises
    ------
    ScenarioError
        All errors, with their places in the file.
    """
    if isinstance(source, Scenario):
        source = source.model_dump(exclude_unset=True)
    known: dict[str, Rehearsal] = {}
    tried: list[Rehearsal] = []

    def try_point(scenario: Scenario) -> list[Problem]:
        """Return the errors that would stop a point, tried once for those that share a stack."""
        assert try_fn is not None
        key = make_stack_key(scenario)
        if key not in known:
            known[key] = try_fn(scenario)
        tried.append(known[key])
        return list(known[key].problems)

    scenario, points = load_points(source, overrides, None if try_fn is None else try_point)
    return Report(scenario, points, list(dict.fromkeys(list_notes(points))), tried)


def rehearse(scenario: Scenario) -> Rehearsal:
    """Rehearse a point.

    Parameters
    ----------
    scenario : Scenario
        The point, without a sweep.

    Returns
    -------
    Rehearsal
        The errors of all user-defined parts and packages that the point names, or else the first
        error of a round. If the data or memory for one trial are absent, no round is rehearsed.

    Raises
    ------
    Exception
        Errors of otafl itself.
    """
    problems = []
    of_user = [section.find_function for _, section in iterate_custom_sections(scenario)]
    for attempt in (*of_user, scenario.track.check_ready):
        try:
            attempt()
        except Exception as raised:
            problems.append(to_problem(raised))
    if problems:
        return Rehearsal(problems)
    try:
        return _run_round(scenario)
    except AbsentDataError as error:
        return Rehearsal(untried=str(error))
    except Exception as raised:
        return Rehearsal([to_problem(raised)])


def to_problem(raised: Exception) -> Problem:
    """Return a UserError, or an error of user-defined code, as the problem of a key.

    It is the key that the sentence begins with. Any other error is raised.
    """
    error = loading.explain_error(raised)
    if not isinstance(error, UserError):
        raise raised
    key = re.match(r"[a-z_]+(\.[a-z_]+)*(?=[:\[])", str(error))
    return Problem(str(error), tuple(key[0].split(".")) if key else (), _OTHERS)


def reduce_scenario(scenario: Scenario) -> Scenario:
    """Return a scenario of one round and one trial with few participants and little work.

    The population stays, up to a bound; of a large model it becomes the participants, unless a
    user-defined part may need all devices.
    """
    devices, training = scenario.devices, scenario.training
    count = min(devices.count, MAX_DEVICES)
    few = min(devices.participants or count, count, PARTICIPANTS)
    own = [path for path, section in iterate_custom_sections(scenario) if section.affects_results]
    if all(path[0] in COHORT_SECTIONS for path in own):
        count = few if build_model(scenario).num_params * count > MAX_NUMBERS else count
    senders = None if devices.senders is None else min(devices.senders, few)
    less = {
        "rounds": 1,
        "local_steps": min(training.local_steps, LOCAL_STEPS),
        "local_epochs": None,
        "batch_size": min(training.batch_size, BATCH),
        "eval_every": 1,
        "eval_samples": min(training.eval_samples or TESTED, TESTED),
        "fine_tune_steps": min(training.fine_tune_steps, 1),
        "cross_test": False,
        "duration_s": None,
        "stop_at": None,
    }
    few_devices = {"count": count, "participants": few, "senders": senders}
    return scenario.model_copy(
        update={
            "devices": devices.model_copy(update=few_devices),
            "training": training.model_copy(update=less),
            "engine": EngineSettings(device="cpu", dtype=scenario.engine.dtype),
            "trials": 1,
            "sweep": {},
        }
    )


def _run_round(scenario: Scenario) -> Rehearsal:
    """Partition the data over all devices, and run a small round.

    Raises what a run would raise.
    """
    data, section = load_cached(scenario.data), scenario.topology
    if shortage := find_shortage(scenario):
        return Rehearsal(untried=shortage)
    servers = section.count(scenario) if section.partition_scope == "all" else 1
    rows = topology.Rows.build([scenario], [0], torch.device("cpu"), torch.float32)
    num_devices, places = servers * scenario.devices.count, topology.locate_devices(rows)
    partition_samples(scenario.data, data, num_devices, rows.trials, places)
    small = reduce_scenario(scenario)
    points = [Point(0, {}, small)]
    engine = Engine(assemble(points, [0]))
    recorder = Recorder(engine, 1, 1)
    recorder.take_record(0, 0.0)
    engine.run_round(0)
    recorder.take_record(1, 0.0)
    to_dataset(recorder.record(), points, small)
    return Rehearsal(
        trial_bytes=estimate_trial(scenario),
        seconds=scenario.trials * bound_seconds(scenario),
        start_bits=engine.parts.model.count_start_bits(),
    )
