"""Kinds of power budgets in a sweep, which decide whether its points are a fair comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from otafl.core import registry

KINDS = ("none", "peak", "average", "sum")
"""Kinds of power constraints, in the order of their numbers in a result (`power_constraint`)."""

_WORDS = {
    "none": "without a bound",
    "peak": "in every round",
    "average": "on average over fading",
    "sum": "in every round for the sum over devices",
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
    names = _find_values_by_kind(points)
    largest = max(counts, key=lambda kind: (counts[kind], kind == "peak"))
    clauses = []
    for kind in (*(one for one in counts if one != largest), largest):
        named = names.get(kind, [f"{counts[kind]} of {len(points)} points"])
        said = ", ".join(named[:_MAX_NAMED]) + ", ..." * (len(named) > _MAX_NAMED)
        clauses.append(f"{'others' if kind == largest else said} {_WORDS[kind]}")
    return f"power budgets differ: {', '.join(clauses)}"


def _find_values_by_kind(points: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, list[str]]:
    """Find the values, by kind, of a coordinate that decides the kind; nothing if none does."""
    for name in points[0][0]:
        kinds: dict[str, set[str]] = {}
        for labels, kind in points:
            value = labels[name]
            text = f"{name}={value:g}" if isinstance(value, (int, float)) else str(value)
            kinds.setdefault(text, set()).add(kind)
        if all(len(one) == 1 for one in kinds.values()):
            names: dict[str, list[str]] = {}
            for text, (kind,) in kinds.items():
                names.setdefault(kind, []).append(text)
            return names
    return {}
