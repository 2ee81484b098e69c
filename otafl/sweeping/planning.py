"""The stacks of a sweep: which trials of which points run side by side.

Every trial of every point has a name, and each stack is one file. A sweep begins, continues and
grows in one way: the stacks are planned from the whole grid, and computed are those whose names
are in no file. Settings and shapes alone decide the plan, so that a resumed sweep does what an
undisturbed one does.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from otafl.running.memory import count_trials_at_once
from otafl.scenario import (
    Point,
    Scenario,
    compute_scenario_hash,
    get_data_folder,
    hash_custom_sources,
    hash_named_files,
    make_stack_key,
)
from otafl.user_code.sources import Sources

Row = tuple[str, int]
"""Name of a point, and number of a trial."""


@dataclass(frozen=True)
class Stack:
    """Trials of points that run side by side, and become one file.

    points : the points.
    names : of each point, see `name_points`.
    trials : numbers of the trials, the same of each point.
    key : common key of the points, see `scenario.make_stack_key`.
    """

    points: list[Point]
    names: list[str]
    trials: list[int]
    key: str

    @functools.cached_property
    def name(self) -> str:
        """Return the name of its file, a hash of its rows."""
        return _hash([self.names, self.trials])[:16]

    @property
    def rows(self) -> set[Row]:
        """Return the names of its trials."""
        return {(name, trial) for name in self.names for trial in self.trials}

    @property
    def scenario(self) -> Scenario:
        """Return the scenario of the first point; what forces a stack is the same in all."""
        return self.points[0].scenario


def name_points(points: Sequence[Point], sources: Sequence[Sources]) -> list[str]:
    """Return the names of points, hashes of the scenario and the files of each.

    Neither the number of trials counts, nor what else the sweep has. A folder of data counts with
    its place, since its content does not. sources: of each point.
    """
    names: list[str] = []
    taken = Counter[str]()
    for point, own in zip(points, sources, strict=True):
        scenario = compute_scenario_hash(point.scenario.model_copy(update={"trials": 1}))
        if folder := get_data_folder(point.scenario):
            scenario = _hash([scenario, folder])
        taken[scenario] += 1  # two values of an axis may mean the same
        names.append(_hash([scenario, own, taken[scenario]])[:20])
    return names


def hash_sources(points: Sequence[Point]) -> list[Sources]:
    """Return the files that each point needs, see `hash_files`."""
    return [hash_files(point.scenario) for point in points]


def hash_files(scenario: Scenario) -> Sources:
    """Return the files of user-defined modules, and those that a scenario names, with hashes."""
    return hash_custom_sources(scenario) | hash_named_files(scenario)


def plan(points: Sequence[Point], names: Sequence[str], sizes: Mapping[str, int]) -> list[Stack]:
    """Group points by stack key, in order, into stacks of `engine.memory_gb` each.

    Parameters
    ----------
    points, names : of the whole sweep.
    sizes : key of a stack -> trials of points at once, where the memory was too short for more.
    """
    groups: dict[str, list[int]] = {}
    for place, point in enumerate(points):
        groups.setdefault(make_stack_key(point.scenario), []).append(place)
    stacks = []
    for key, places in groups.items():
        scenario = points[places[0]].scenario
        size = sizes.get(key) or count_trials_at_once(scenario)
        num_points = max(1, size // scenario.trials)
        num_trials = max(1, min(size, scenario.trials))
        for first in range(0, len(places), num_points):
            own = places[first : first + num_points]
            for trial in range(0, scenario.trials, num_trials):
                trials = list(range(trial, min(trial + num_trials, scenario.trials)))
                own_points, own_names = [points[i] for i in own], [names[i] for i in own]
                stacks.append(Stack(own_points, own_names, trials, key))
    return stacks


def select_missing(stacks: Iterable[Stack], held: Set[Row]) -> list[Stack]:
    """Return the stacks of the rows that are not there yet.

    A stack whose points have different trials already becomes one for each set of trials.
    """
    missing = []
    for stack in stacks:
        places: dict[tuple[int, ...], list[int]] = {}
        for place, name in enumerate(stack.names):
            lacking = tuple(trial for trial in stack.trials if (name, trial) not in held)
            places.setdefault(lacking, []).append(place)
        for trials, own in places.items():
            if trials:
                points, names = [stack.points[i] for i in own], [stack.names[i] for i in own]
                missing.append(Stack(points, names, list(trials), stack.key))
    return missing


def _hash(tree: object) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
