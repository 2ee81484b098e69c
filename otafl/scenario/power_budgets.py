"""Kinds of power budgets in a sweep, which decide whether its points are a fair comparison."""

from __future__ import annotations

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
    kinds = {kind for _, kind in points}
    if len(kinds) < 2:
        return ""
    clauses = []
    groups = _group_by_coordinate(points)
    largest = max(groups, key=lambda kind: len(groups[kind]))
    for kind in sorted(groups, key=lambda kind: kind == largest):
        named = groups[kind]
        more = ", ..." if len(named) > _MAX_NAMED else ""
        who = "others" if kind == largest else ", ".join(named[:_MAX_NAMED]) + more
        clauses.append(f"{who} {_WORDS[kind]}")
    return f"power budgets differ: {', '.join(clauses)}"


def _group_by_coordinate(points: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, list[str]]:
    """Return the values of the coordinate that decides the kind, by kind.

    If no single coordinate does, they are the combinations of all.
    """
    for name in points[0][0]:
        found = {(str(labels[name]), kind) for labels, kind in points}
        if len(found) == len({value for value, _ in found}):
            break
    else:
        name = ""
    groups: dict[str, list[str]] = {}
    for labels, kind in points:
        text = str(labels[name]) if name else " ".join(f"{k}={v}" for k, v in labels.items())
        if text not in groups.setdefault(kind, []):
            groups[kind].append(text)
    return groups
