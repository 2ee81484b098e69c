"""One pass over a scenario before it runs: errors, warnings, size and time.

Every point is validated, and tried if the caller says how: on synthetic samples
(`otafl.preflight.rehearsal`) or on the data themselves (`otafl.preflight.dry_run`). Points that
could share a stack are tried once. Nothing is computed that this machine has no memory for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from otafl.core.problems import Problem
from otafl.data.shape import declared_shape
from otafl.preflight.rehearsal import rehearse
from otafl.running.duration import bound_seconds
from otafl.running.memory import estimate_trial, find_excess_bound, find_shortage
from otafl.scenario import Point, Scenario, ScenarioError, notes_on, stack_key
from otafl.scenario.keys import custom_sections, dotted
from otafl.scenario.loading import load_points
from otafl.user_code import loading

Look = Callable[[Scenario, bool], list[Problem]]
"""(point, whether this machine has the memory for it) -> what would stop its run."""


@dataclass(frozen=True)
class Report:
    """What is known of a scenario before it runs.

    Parameters
    ----------
    scenario : None if there is an error.
    points : of its sweep.
    error : everything that is wrong, with its places in the file.
    warnings : memory that this machine does not have, and valid settings that are probably not
        intended.
    unchecked : code of the user's that was not imported, within `loading.without_code`.
    trial_bytes : memory of the largest trial at least, None if unknown.
    seconds : of computing all trials at least, None if unknown.
    """

    scenario: Scenario | None = None
    points: tuple[Point, ...] = ()
    error: ScenarioError | None = None
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    trial_bytes: int | None = None
    seconds: float | None = None

    def require_scenario(self) -> Scenario:
        """Return the scenario. Raises ScenarioError if it has errors."""
        if self.scenario is None:
            assert self.error is not None
            raise self.error
        return self.scenario


def report(
    source: Scenario | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    look: Look | None = rehearse,
) -> Report:
    """Look at a scenario before it runs.

    Parameters
    ----------
    source, overrides
        As `otafl.load_scenario` takes them, or a scenario that it returned.
    look : callable, optional
        How points are tried. With None they are only validated, and size and time stay unknown.
    """
    if isinstance(source, Scenario):
        source = source.model_dump(exclude_unset=True)
    walk = None if look is None else _Walk(look)
    try:
        scenario, points = load_points(source, overrides, walk)
    except ScenarioError as error:
        return Report(error=error)
    sizes = [] if walk is None else walk.sizes
    unchecked = {point.index: _find_unimported(point.scenario) for point in points}
    known = [point for point in points if not unchecked[point.index]]
    warnings = [one.shortage for one in sizes]
    if sizes and known:
        warnings.insert(0, find_excess_bound(known[0].scenario))
    if known:
        warnings += notes_on(known)
    bytes_, seconds = [one.bytes for one in sizes], [one.seconds for one in sizes]
    return Report(
        scenario,
        tuple(points),
        warnings=tuple(filter(None, dict.fromkeys(warnings))),
        unchecked=tuple(dict.fromkeys(itertools.chain(*unchecked.values()))),
        trial_bytes=max(bytes_) if all(bytes_) and bytes_ else None,
        seconds=sum(seconds) if all(seconds) and seconds else None,
    )


class _Size(NamedTuple):
    """What a point takes at least: bytes of a trial, seconds of all; 0 for unknown.

    shortage: a sentence if this machine has less memory.
    """

    bytes: int = 0
    seconds: float = 0.0
    shortage: str = ""


class _Walk:
    """Try points in turn, those that could share a stack once. sizes: of each point."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._known: dict[str, tuple[_Size, list[Problem]]] = {}
        self.sizes: list[_Size] = []

    def __call__(self, scenario: Scenario) -> list[Problem]:
        """Return what would stop a run of a point."""
        key = stack_key(scenario)
        if key not in self._known:
            size = _estimate_size(scenario)
            self._known[key] = size, self._look(scenario, not size.shortage)
        size, problems = self._known[key]
        self.sizes.append(size)
        return problems


def _estimate_size(scenario: Scenario) -> _Size:
    """Return what a point takes, as far as it is known before the data are read. What raises an
    error here is left to the trial of the point.
    """
    if _find_unimported(scenario):
        return _Size()
    try:
        shape = declared_shape(scenario.data)
        if shape is None:
            return _Size()
        trial = estimate_trial(scenario, shape)
        seconds = scenario.trials * bound_seconds(scenario, shape, trial.model)
    except Exception:
        return _Size()
    return _Size(trial.bytes, seconds, find_shortage(scenario, trial))


def _find_unimported(scenario: Scenario) -> list[str]:
    """Name the code of the user's that a point names, within `loading.without_code`."""
    if loading.imports_code():
        return []
    names = (f"{dotted(path)}.name: {own.name!r}" for path, own in custom_sections(scenario))
    return [f"{name}, its keys and what depends on it" for name in names]
