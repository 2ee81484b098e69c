"""Short text of a scenario: keys that were set, keys that matter, and keys without effect."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otafl.core import registry
from otafl.core.problems import Path
from otafl.core.settings import Settings
from otafl.scenario.keys import format_path, get_value, iterate_sections, set_value, split
from otafl.scenario.schema import Point, Scenario
from otafl.scenario.writing import name_first, to_yaml
from otafl.scenario.yaml_source import dump, parse

ESSENTIAL = (
    *("data.name", "data.partition.name", "model.name", "algorithm.name"),
    *("algorithm.learning_rate", "channel.name", "channel.snr_db", "csi.name", "power.name"),
    *("transport.name", "devices.count", "training.rounds", "training.local_steps"),
    *("training.local_epochs", "training.batch_size", "trials", "seed"),
)
"""Keys that are shown even if they have their default."""

REPLACED = {"training.local_steps": "training.local_epochs"}
"""Key that is not shown if it has its default -> the key that takes its place when given."""

MAX_ASKED = 1_000
"""Largest number of points that are asked for keys without effect."""


def format_settings(scenario: Scenario, points: Sequence[Point] = (), full: bool = False) -> str:
    """Write a scenario as YAML that reads back, with remarks on its keys.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    points : sequence of Point, optional
        Points of its sweep, from which follows which keys have no effect.
    full : bool, default False
        Whether to write all keys; else those that were set, and those of `ESSENTIAL`.
    """
    tree = parse(to_yaml(scenario)).data
    given = set(_iterate_given(scenario))
    remarks: dict[Path, str] = {}
    if not full:
        tree, remarks = _select(tree, given, _list_swept(scenario))
    idle = find_idle_keys(points)
    remarks |= {path: f"without effect: {reason}" for path, reason in idle.items()}
    return _add_remarks(dump(tree), remarks)


def find_idle_keys(points: Sequence[Point]) -> dict[Path, str]:
    """Return the given keys that have no effect at any point -> the reason."""
    idle: dict[Path, str] = {}
    effective: set[Path] = set()
    for point in itertools.islice(points, MAX_ASKED):
        found = dict(_iterate_idle(point.scenario))
        idle |= found
        effective |= {path for path in _iterate_given(point.scenario) if path not in found}
        if "power" in point.scenario.model_fields_set and ("power",) not in found:
            effective.add(("power",))
    return {path: reason for path, reason in idle.items() if path not in effective}


def _iterate_idle(scenario: Scenario) -> Iterator[tuple[Path, str]]:
    """Yield the given keys without effect at a point, with the reason."""
    transport = scenario.transport.name
    obeys = registry.load_component("transport", transport).obeys_power
    if not obeys and "power" in scenario.model_fields_set:
        yield ("power",), f"transport '{transport}' uses no power policy"
    for path, section in iterate_sections(scenario):
        for key, other in type(section).idle_without.items():
            if not section.is_default(key) and section.is_default(other):
                yield (*path, key), f"{other} is not set"


def _iterate_given(settings: Settings, above: Path = ()) -> Iterator[Path]:
    """Yield the path of every key that was set."""
    for name, value in settings:
        if name not in settings.model_fields_set:
            continue
        if isinstance(value, Settings):
            yield from _iterate_given(value, (*above, name))
        else:
            yield (*above, name)


def _list_swept(scenario: Scenario) -> set[Path]:
    """Return the path of every swept key; a component stands for its section."""
    keys = (key for row in (scenario.sweep, *scenario.sweep.get("zip", ())) for key in row)
    return {split(key.removesuffix(".name")) for key in keys}


def _select(
    tree: Mapping[str, Any], given: set[Path], swept: set[Path]
) -> tuple[dict[str, Any], dict[Path, str]]:
    """Return the given and the essential keys, and the remarks on those with their default.

    Essential keys that are swept are left out.
    """
    selected: dict[str, Any] = {}
    remarks = {}
    fixed = [
        path
        for path in map(split, ESSENTIAL)
        if not any(path[:depth] in swept for depth in range(1, len(path) + 1))
    ]
    for key, other in REPLACED.items():
        if split(other) in given | swept and split(key) not in given:
            fixed = [path for path in fixed if path != split(key)]
    for path in dict.fromkeys((*fixed, *_iterate_keys(tree, given))):
        value = get_value(tree, path)
        if value is None and path not in given:
            continue
        selected = set_value(selected, path, value)
        if path not in given:
            remarks[path] = "default"
    order = {key: place for place, key in enumerate(tree)}
    ordered = dict(sorted(selected.items(), key=lambda item: order[item[0]]))
    return name_first(ordered), remarks


def _iterate_keys(tree: Any, given: set[Path], above: Path = ()) -> Iterator[Path]:
    """Yield the given paths in the order of the tree, and those of parts that it fills in."""
    for key, value in tree.items():
        path = (*above, key)
        if path in given:
            yield path
        elif isinstance(value, Mapping):
            yield from _iterate_keys(value, given, path)


def _add_remarks(text: str, remarks: Mapping[Path, str]) -> str:
    """Return YAML with remarks at the end of lines."""
    places, lines = parse(text).places, text.splitlines()
    for path, remark in remarks.items():
        key = format_path(path)
        found = [one for one in (path, ("sweep", key), ("sweep", f"{key}.name")) if one in places]
        for one in found[:1]:
            line = places[one][0] - 1
            lines[line] = f"{lines[line]}  # {remark}"
    return "\n".join(lines)
