"""One small round of a scenario, which finds errors that only a run can show.

The data are read and partitioned, and a few devices train and transmit. The result is evaluated and
recorded as in a run; nothing is written. Each user-defined part is tried first among built-in parts
and working user-defined ones, so that every failing part is reported separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from otafl.core import registry
from otafl.core.choices import Choice
from otafl.core.errors import UserError
from otafl.core.problems import Path, Problem
from otafl.core.settings import Settings
from otafl.core.suggestions import format_count
from otafl.preflight.first_round import MAX_DEVICES, catch_problem, to_problem
from otafl.results.dataset import to_dataset
from otafl.running.stack_run import run_stack
from otafl.scenario import Point, Scenario, compute_scenario_hash
from otafl.scenario.keys import CHOICES, format_path, iterate_custom_sections
from otafl.user_code import loading
from otafl.user_code.custom_part import CustomPart

PARTICIPANTS = 4
LOCAL_STEPS = 2
BATCH = 4
TESTED = 100
"""Bounds of a dry run: participants, their work, and test samples."""

DATA = ("data",)


class SmallRound:
    """A trial of points of a scenario.

    Parameters
    ----------
    tell : callable
        Function that is called with each tried part and its time.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._parts: dict[str, Problem | None] = {}
        self._done: set[str] = set()
        self.tries, self.seconds = 0, 0.0

    def __call__(self, scenario: Scenario, fits: bool = True) -> list[Problem]:
        """Return the errors of a point. fits: whether this machine has enough memory for it."""
        # nothing is written, so runs are not tracked: a tracker is searched for, but not called
        failed = [one for one in (catch_problem(scenario.track.check_ready),) if one is not None]
        if not fits:
            return failed
        small = reduce_scenario(scenario)
        own = {
            path: section
            for path, section in iterate_custom_sections(small)
            if section.affects_results
        }
        for path, section in own.items():
            name = f"{format_path(path)}: {section!r}"
            if name not in self._parts:
                others = [one for one in own if one != path and not self._has_passed(one, own[one])]
                said = f"{format_path(path)} {section.name!r}"
                self._parts[name] = self._try(
                    _replace_custom_parts(small, others), said, (path, section)
                )
            problem = self._parts[name]
            if problem is not None:
                failed.append(problem)
                if path == DATA:
                    break  # parts that use the samples cannot be tried on others
        if not failed:
            method = f"{small.algorithm.name}, {small.channel.name}, {small.power.name}"
            last = self._try(small, f"a whole round ({method}, {small.transport.name})")
            failed += [last] if last is not None else []
        return failed

    def format_summary(self, scenario: Scenario) -> str:
        """Summarise the tried rounds and their time."""
        small = reduce_scenario(scenario)
        return (
            f"dry run: {format_count(self.tries, 'round')} of at most {small.devices.participants} "
            f"of {format_count(scenario.devices.count, 'device')}, local steps "
            f"{small.training.local_steps} on {small.training.batch_size} samples, "
            f"{self.seconds:.1f} s; nothing was written"
        )

    def _has_passed(self, path: Path, section: CustomPart) -> bool:
        name = f"{format_path(path)}: {section!r}"
        return name in self._parts and self._parts[name] is None

    def _try(
        self, scenario: Scenario, said: str, part: tuple[Path, CustomPart] | None = None
    ) -> Problem | None:
        """Run a round, once for each scenario; return its error, attributed to the part."""
        key = compute_scenario_hash(scenario)
        if key in self._done:
            return None
        self._done.add(key)
        began, found = time.perf_counter(), None
        try:
            if part is None:
                _run(scenario)
            else:
                with loading.attribute_errors(part[1].name, f"{format_path(part[0])}.name"):
                    _run(scenario)
        except Exception as raised:
            error = loading.explain_error(raised)
            if not isinstance(error, UserError):
                raise
            found = to_problem(error)
            if part is not None:
                found = Problem(found.message, (*part[0], "name"))
        seconds = time.perf_counter() - began
        self.tries, self.seconds = self.tries + 1, self.seconds + seconds
        self._tell(f"{said}: {'works' if found is None else 'fails'}, {seconds:.2f} s")
        return found


def reduce_scenario(scenario: Scenario) -> Scenario:
    """Return a scenario of one round and one trial with few participants and little work.

    The population stays, up to a bound.
    """
    devices, training = scenario.devices, scenario.training
    count = min(devices.count, MAX_DEVICES)
    few = min(devices.participants or count, count, PARTICIPANTS)
    senders = None if devices.senders is None else min(devices.senders, few)
    less: dict[str, Any] = {
        "rounds": 1,
        "local_steps": min(training.local_steps, LOCAL_STEPS)
        if training.local_epochs is None
        else LOCAL_STEPS,
        "local_epochs": None,
        "batch_size": min(training.batch_size, BATCH),
        "eval_every": 1,
        "eval_samples": min(training.eval_samples or TESTED, TESTED),
        "fine_tune_steps": min(training.fine_tune_steps, 1),
        "duration_s": None,
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


def _run(scenario: Scenario) -> None:
    points = [Point(0, {}, scenario)]
    to_dataset(run_stack(points), points, scenario)


def _replace_custom_parts(scenario: Scenario, paths: list[Path]) -> Scenario:
    """Return the scenario with built-in parts in these sections."""
    made: Any = scenario
    for path in paths:
        made = _replace_section(made, path, CHOICES[path])
    assert isinstance(made, Scenario)
    return made


def _replace_section(section: Settings, path: Path, choice: Choice) -> Settings:
    """Return settings with the table's default below them, with the keys that it accepts."""
    first, rest = str(path[0]), path[1:]
    inner = getattr(section, first)
    if rest:
        return section.model_copy(update={first: _replace_section(inner, rest, choice)})
    name = choice.default_name
    kind = registry.load_settings_class(choice.table, name)
    own = ("name", "start")  # a start is of the user-defined module's weights
    shared = {key: value for key, value in inner if key in kind.model_fields and key not in own}
    try:
        made = kind.model_validate({"name": name} | shared)
    except ValidationError:  # the user-defined part has another meaning for a key
        made = choice.make_default()
    return section.model_copy(update={first: made})
