"""One pass over a scenario before it runs: errors, warnings, size and time.

Every point is validated, and tried if the caller says how: on synthetic samples
(`otafl.preflight.rehearsal`) or on the data themselves (`otafl.preflight.dry_run`). Points that
could share a stack are tried once, and only where this machine has the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from otafl.core import custom
from otafl.core.problems import Problem
from otafl.data.shape import declared_shape
from otafl.running.duration import bound_seconds
from otafl.running.memory import (
    TrialEstimate,
    estimate_trial,
    find_excess_bound,
    find_shortage,
)
from otafl.scenario import Point, Scenario, ScenarioError, notes_on, stack_key
from otafl.scenario.keys import custom_sections, dotted
from otafl.scenario.loading import load_points

Look = Callable[[Scenario], list[Problem]]
"""Tries a point, and returns what would stop its run."""

MOST_SIZES = 100
"""Different sizes of a sweep's trials that are estimated."""


@dataclass(frozen=True)
class Report:
    """What is known of a scenario before it runs.

    Parameters
    ----------
    scenario : None if there is an error.
    points : of its sweep.
    error : everything that is wrong, with its places in the file.
    shortages : of memory on this machine, as far as points were tried.
    notes : valid settings that are probably not intended.
    unchecked : code of the user's that was not imported, within `custom.without_code`.
    trial_bytes : memory of the largest trial at least, None if unknown.
    seconds : of computing all trials at least, None if unknown.
    """

    scenario: Scenario | None = None
    points: tuple[Point, ...] = ()
    error: ScenarioError | None = None
    shortages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    trial_bytes: int | None = None
    seconds: float | None = None

    @property
    def errors(self) -> tuple[str, ...]:
        """Return a line for each error."""
        return () if self.error is None else self.error.lines

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each shortage and note."""
        return self.shortages + self.notes

    def valid(self) -> Scenario:
        """Return the scenario.

        Raises
        ------
        ScenarioError
            If it has errors.
        """
        if self.error is not None:
            raise self.error
        assert self.scenario is not None
        return self.scenario


def report(
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    look: Look | None = None,
) -> Report:
    """Look at a scenario before it runs.

    Parameters
    ----------
    source, overrides
        As `otafl.load_scenario` takes them.
    look : callable, optional
        How points are tried. Without it they are validated only, and size and time stay unknown.
    """
    sizes = _Sizes()
    try:
        scenario, points = load_points(
            source, overrides, None if look is None else _once_per_stack(look, sizes)
        )
    except ScenarioError as error:
        return Report(error=error)
    known = [point for point in points if not _unimported(point)]
    found = Report(
        scenario=scenario,
        points=tuple(points),
        notes=tuple(notes_on(known)) if known else (),
        unchecked=tuple(dict.fromkeys(one for point in points for one in _unimported(point))),
    )
    if look is None or not known:
        return found
    return replace(
        found,
        shortages=tuple(sizes.find_shortages(known)),
        trial_bytes=sizes.largest(known),
        seconds=sizes.bound_seconds(points) if len(known) == len(points) else None,
    )


def _once_per_stack(look: Look, sizes: _Sizes) -> Look:
    """Try points that could share a stack once, and none that this machine has no memory for."""
    known: dict[str, list[Problem]] = {}

    def try_point(scenario: Scenario) -> list[Problem]:
        key = stack_key(scenario)
        if key not in known:
            known[key] = [] if sizes.find_shortage(scenario) else look(scenario)
        return known[key]

    return try_point


def _unimported(point: Point) -> list[str]:
    """Name the code of the user's that a point names, within `custom.without_code`."""
    if custom.imports_code():
        return []
    names = (f"{dotted(path)}.name: {own.name!r}" for path, own in custom_sections(point.scenario))
    return [f"{name}, its keys and what depends on it" for name in names]


class _Sizes:
    """The memory and time of trials, estimated once for all of one size."""

    def __init__(self) -> None:
        self._known: dict[str, TrialEstimate | None] = {}

    def estimate(self, scenario: Scenario) -> TrialEstimate | None:
        """Return what a trial takes, None if that is unknown before the data are read."""
        key = _size_of(scenario)
        if key not in self._known:
            few = len(self._known) < MOST_SIZES
            self._known[key] = _estimate(scenario) if few else None
        return self._known[key]

    def find_shortage(self, scenario: Scenario) -> str:
        """Return a sentence if a trial takes more memory than this machine has."""
        trial = self.estimate(scenario)
        return "" if trial is None else find_shortage(scenario, trial)

    def find_shortages(self, points: Sequence[Point]) -> list[str]:
        """Return a sentence for each size that is too large, and for the bound on a stack."""
        said = [find_excess_bound(points[0].scenario)]
        said += [self.find_shortage(point.scenario) for point in points]
        return [text for text in dict.fromkeys(said) if text]

    def largest(self, points: Sequence[Point]) -> int | None:
        """Return the bytes of the largest trial, None if that of some point is unknown."""
        trials = [self.estimate(point.scenario) for point in points]
        known = [trial.bytes for trial in trials if trial is not None]
        return max(known) if len(known) == len(trials) else None

    def bound_seconds(self, points: Sequence[Point]) -> float | None:
        """Return how long all trials compute at least, None if that is unknown."""
        groups: dict[str, list[Point]] = {}
        for point in points:
            load = (point.scenario.training.local_steps, point.scenario.training.batch_size)
            groups.setdefault(f"{_size_of(point.scenario)} {load}", []).append(point)
        if len(groups) > MOST_SIZES or self.largest(points) is None:
            return None
        seconds = 0.0
        for group in groups.values():
            shape = declared_shape(group[0].scenario.data)
            if shape is None or not shape.samples:
                return None
            seconds += bound_seconds(group, shape)
        return seconds


def _size_of(scenario: Scenario) -> str:
    """Return what the memory of a trial depends on."""
    count = (scenario.devices.count, scenario.devices.participants)
    return repr((scenario.data.name, scenario.model, scenario.algorithm, scenario.topology, *count))


def _estimate(scenario: Scenario) -> TrialEstimate | None:
    """Return what a trial takes. What raises an error is left to whoever tries the point."""
    if not custom.imports_code() and any(custom_sections(scenario)):
        return None
    try:
        shape = declared_shape(scenario.data)
        return None if shape is None else estimate_trial(scenario, shape)
    except Exception:
        return None
