"""Kinds of power budgets in a sweep, which decide whether its points are a fair comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from otafl.core import registry

KINDS = ("none", "peak", "average")
"""Kinds of power constraints, in the order of their numbers in a result (`power_constraint`)."""

_WORDS = {
    "none": "without a bound",
    "peak": "in every round",
    "average": "on average over fading",
}
_MAX_NAMED = 4


def find_power_constraint(scenario: Any) -> str | None:
    """Return the kind of a scenario's power budget, of `KINDS`.

    It is that of the power policy, or of a transport that uses none. An error-free transport has
    no kind, since its outcome depends on no power.
    """
    name = scenario.transport.name
    if registry.load_component("transport", name).obeys_power:
        return str(scenario.power.values.power_constraint)
    found: str | None = scenario.transport.values.power_constraint
    return found


def describe_power_budgets(points: Sequence[tuple[Mapping[str, Any], str]]) -> str:
    """Describe power budgets of different kinds in a sweep.

    Parameters
    ----------
    points : sequence of tuple of mapping and str
        Coordinates and kind of the power constraint of each point.

    Returns
    -------
    str
        For example "power budgets differ: tci on average over fading, others in every round"; empty
        if all are of one kind.
    """
    counts = Counter(kind for _, kind in points)
    if len(counts) < 2:
        return ""
    groups = _group_by_coordinate(points)
    largest = max(counts, key=lambda kind: (counts[kind], kind == "peak"))
    clauses = []
    for kind in (*(one for one in groups if one != largest), largest):
        named = ", ".join(groups[kind][:_MAX_NAMED]) + ", ..." * (len(groups[kind]) > _MAX_NAMED)
        clauses.append(f"{'others' if kind == largest else named} {_WORDS[kind]}")
    return f"power budgets differ: {', '.join(clauses)}"


def _group_by_coordinate(points: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, list[str]]:
    """Return the values of the coordinate that decides the kind, by kind.

    If no single coordinate does, they are the combinations of all.
    """
    for name in points[0][0]:
        found = {(str(labels[name]), kind) for labels, kind in points}
        if len(found) == len({value for value, _ in found}):
            points = [({name: labels[name]}, kind) for labels, kind in points]
            break
    groups: dict[str, list[str]] = {}
    for labels, kind in points:
        text = " ".join(_format_coordinate(*one) for one in labels.items())
        if text not in groups.setdefault(kind, []):
            groups[kind].append(text)
    return groups


def _format_coordinate(name: str, value: Any) -> str:
    return f"{name}={value:g}" if isinstance(value, (int, float)) else str(value)
