"""The plan of a sweep: which points run together.

A stack holds points that differ only in fields that change no shape (and in seed), as many as the
memory bound allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from otafl.running.memory import estimate_need
from otafl.scenario import Point, Scenario, make_stack_key

T = TypeVar("T")

STACKS_PER_WORKER = 2
"""Number of stacks for each worker of a sweep with several groups, if its points allow it.

Groups take different times, and smaller stacks let the last workers wait less. The points of a
sweep's only group take equal times, so one stack for each worker is enough. Rounds of small models
take almost the same time for any number of points, so more stacks would take more time in all.
"""


class Batch(NamedTuple):
    """Part of a stack that runs at once: places of points in it, and trial numbers."""

    points: list[int]
    trials: list[int]

    @property
    def num_rows(self) -> int:
        """Count the trials of points."""
        return len(self.points) * len(self.trials)

    def split_in_half(self) -> list[Batch]:
        """Return two batches of it: of half the trials, or half the points of one trial."""
        if len(self.trials) > 1:
            half = -(-len(self.trials) // 2)
            return [Batch(self.points, part) for part in _split_values(self.trials, half)]
        half = -(-len(self.points) // 2)
        return [Batch(part, self.trials) for part in _split_values(self.points, half)]


@dataclass(frozen=True)
class Stack:
    """Points of one result file, and the batches that they run in: one, unless memory is short.

    earlier: the number of first trials that are finished in a file of their own, since the sweep
    has grown.
    """

    number: int
    points: list[Point]
    batches: list[Batch]
    earlier: int = 0

    @property
    def scenario(self) -> Scenario:
        """Return the scenario of the first point.

        The settings that force a stack of its own are the same in all points.
        """
        return self.points[0].scenario

    @property
    def num_rounds(self) -> int:
        """Count the rounds of all batches."""
        return self.scenario.training.rounds * len(self.batches)


def plan(points: Sequence[Point], workers: int = 1) -> list[Stack]:
    """Group points by stack key, in order, within `engine.memory_gb`.

    There are enough stacks for the given number of workers.
    """
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(make_stack_key(point.scenario), []).append(point)
    wanted = max(1, workers) * (STACKS_PER_WORKER if workers > 1 and len(groups) > 1 else 1)
    share = -(-len(points) // wanted)
    parts: list[tuple[list[Point], list[Batch]]] = []
    for group in groups.values():
        scenario = group[0].scenario
        at_once = estimate_need(group).count_trials_within(scenario.engine.memory_gb * 2**30)
        size = max(1, min(at_once // scenario.trials, share))
        numbers = list(range(scenario.trials))
        for own in _split_values(group, size):
            batches = [
                Batch(list(range(len(own))), trials) for trials in _split_values(numbers, at_once)
            ]
            parts.append((own, batches))
    return [Stack(number, *part) for number, part in enumerate(parts)]


def plan_more_trials(points: Sequence[Point], trials: Sequence[int]) -> list[Batch]:
    """Return batches of more trials of points of one stack, within `engine.memory_gb`."""
    at_once = estimate_need(points).count_trials_within(points[0].scenario.engine.memory_gb * 2**30)
    each = max(1, at_once // len(points))
    every = list(range(len(points)))
    return [Batch(every, part) for part in _split_values(trials, each)]


def _split_values(values: Sequence[T], size: int) -> list[list[T]]:
    return [list(values[first : first + size]) for first in range(0, len(values), size)]
