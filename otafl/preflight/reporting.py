"""One pass over a scenario before a run: errors, warnings, size and time.

Every point is validated, and optionally rehearsed: on synthetic samples
(`rehearsal.find_problems`) or on the data themselves (`find_problems_on_data`). Points that could
share a stack are rehearsed once. Nothing that exceeds this machine's memory is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.data.loading import get_declared_shape
from otafl.models.starts.base import Start
from otafl.preflight.rehearsal import find_problems
from otafl.running.memory import bound_seconds, estimate_trial, find_shortage
from otafl.scenario import Point, Scenario, ScenarioError, list_notes, make_stack_key
from otafl.scenario.loading import load_points
from otafl.user_code import loading

Look = Callable[[Scenario, bool], list[Problem]]
"""(point, whether this machine has enough memory for it) -> the errors that would stop its run."""


@dataclass(frozen=True)
class Report:
    """Findings about a scenario before a run.

    Parameters
    ----------
    scenario : Scenario, optional
        The scenario; None if it has an error.
    points : tuple of Point
        Points of its sweep.
    error : ScenarioError, optional
        All errors, with their places in the file.
    warnings : tuple of str
        Memory that this machine lacks, and valid settings that are probably not intended.
    trial_bytes : int, optional
        Lower bound on the memory of the largest trial; None if unknown.
    seconds : float, optional
        Lower bound on the time of all trials; None if unknown.
    start_bits : int
        Bits of the largest broadcast of a start that gives weights; 0 without one.
    """

    scenario: Scenario | None = None
    points: tuple[Point, ...] = ()
    error: ScenarioError | None = None
    warnings: tuple[str, ...] = ()
    trial_bytes: int | None = None
    seconds: float | None = None
    start_bits: int = 0

    def require_scenario(self) -> Scenario:
        """Return the scenario. Raises ScenarioError if it has errors."""
        if self.scenario is None:
            assert self.error is not None
            raise self.error
        return self.scenario


def report(
    source: Scenario | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    look: Look | None = find_problems,
) -> Report:
    """Check a scenario before a run.

    Parameters
    ----------
    source : Scenario, str, Path or mapping
        A scenario, or an argument of `otafl.load_scenario`.
    overrides : sequence of str, optional
        As for `otafl.load_scenario`.
    look : callable, optional
        Function that tries points. With None they are only validated, and size and time stay
        unknown.

    Returns
    -------
    Report
        The findings.
    """
    if isinstance(source, Scenario):
        source = source.model_dump(exclude_unset=True)
    known: dict[str, tuple[_Size, list[Problem]]] = {}
    sizes: list[_Size] = []

    def try_point(scenario: Scenario) -> list[Problem]:
        """Return the errors that would stop a point, once for those that could share a stack."""
        assert look is not None
        key = make_stack_key(scenario)
        if key not in known:
            size = _estimate_size(scenario)
            known[key] = size, look(scenario, not size.shortage)
        sizes.append(known[key][0])
        return known[key][1]

    try:
        scenario, points = load_points(source, overrides, None if look is None else try_point)
    except ScenarioError as error:
        return Report(error=error)
    warnings = [*(one.shortage for one in sizes), *list_notes(points)]
    bytes_, seconds = [one.bytes for one in sizes], [one.seconds for one in sizes]
    return Report(
        scenario,
        tuple(points),
        warnings=tuple(filter(None, dict.fromkeys(warnings))),
        trial_bytes=max(bytes_) if all(bytes_) and bytes_ else None,
        seconds=sum(seconds) if all(seconds) and seconds else None,
        start_bits=max((one.start_bits for one in sizes), default=0),
    )


class _Size(NamedTuple):
    """Lower bounds of a point: bytes of a trial, seconds of all trials; 0 if unknown.

    shortage: a sentence if this machine has less memory. start_bits: of a start that gives weights.
    """

    bytes: int = 0
    seconds: float = 0.0
    shortage: str = ""
    start_bits: int = 0


def _estimate_size(scenario: Scenario) -> _Size:
    """Return the size of a point, as far as it is known before the data are read.

    An error that a run would report is left to the trial of the point.
    """
    try:
        shape = get_declared_shape(scenario.data)
        if shape is None:
            return _Size()
        trial = estimate_trial(scenario, shape)
        start = getattr(scenario.model, "start", None)
        bits = start.count_bits(scenario, trial.model) if isinstance(start, Start) else 0
        seconds = scenario.trials * bound_seconds(scenario, shape, trial.model)
    except Exception as error:
        if not isinstance(loading.explain_error(error), UserError):
            raise
        return _Size()
    return _Size(trial.bytes, seconds, find_shortage(scenario, trial), bits)
