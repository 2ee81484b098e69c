"""Valid settings that are probably not intended: without effect, or no fair comparison."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from otafl.algorithms.custom import sends_increments
from otafl.core import registry
from otafl.core.choices import Choice
from otafl.core.problems import Path
from otafl.scenario.checks import find_otherwise
from otafl.scenario.keys import format_path, iterate_sections
from otafl.scenario.schema import Point, Scenario
from otafl.user_code.custom_part import CustomPart

KINDS = ("none", "peak", "average", "sum")
"""Kinds of power constraints, in the order of their numbers in a result (`power_constraint`)."""

_WORDS = {
    "none": "without a bound",
    "peak": "in every round",
    "average": "on average over fading",
    "sum": "in every round for the sum over devices",
}
_MAX_NAMED = 4

MAX_ASKED = 50
"""Largest number of combinations (of method and data, or of transport, topology and channel) that
are asked for notes."""

MAX_IDLE = 1_000
"""Largest number of points that are asked for settings without effect."""


def list_notes(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each valid setting that is probably not intended.

    These are power policies and settings without effect, clipped models, power budgets of
    different kinds, and the notes of methods, transports, topologies and channels.
    """
    kinds = ((point.coords, find_power_constraint(point.scenario)) for point in points)
    budgets = describe_power_budgets([(at, kind) for at, kind in kinds if kind is not None])
    # given settings without effect at all points with their component, the first value of each
    idle: dict[tuple[Path, str, str], str] = {}
    used = set()
    for scenario in (point.scenario for point in points[:MAX_IDLE]):
        for path, section in iterate_sections(scenario):
            if isinstance(section, CustomPart):
                continue
            for key, other in section.idle_without.items():
                place, name = (path, getattr(section, "name", ""), key), format_path(path)
                if not section.is_off(other):
                    used.add(place)
                elif not section.is_default(key) and place not in idle:
                    idle[place] = (
                        f"{name}.{key}: {getattr(section, key)} without effect, because "
                        f"{name}.{other} is off; set {other}, or leave {key} out"
                    )
    # the notes of the sections of the points, each sentence once
    said: list[str] = []
    for names, about in (
        (("algorithm",), ("algorithm", "transport", "data")),
        (("transport", "topology"), ("transport", "topology", "channel", "seed")),
        (("channel",), ("channel", "training")),
    ):
        different: dict[str, Scenario] = {}
        for scenario in (point.scenario for point in points):
            values = [getattr(scenario, name) for name in about]
            different.setdefault(repr((*values, scenario.devices.count)), scenario)
        for scenario in itertools.islice(different.values(), MAX_ASKED):
            for name in names:
                said += getattr(scenario, name).values.list_notes(scenario)
    return [
        *_note_idle_policies(points),
        *dict.fromkeys(text for place, text in idle.items() if place not in used),
        *_note_clipped_models(points),
        *([budgets] if budgets else ()),
        *dict.fromkeys(said),
    ]


def _note_clipped_models(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each method that sends models under `privacy.clip`.

    The bound is intended for the norm of an increment.
    """
    said = []
    for scenario in (point.scenario for point in points):
        method, clip = scenario.algorithm, scenario.privacy.clip
        if clip is None or sends_increments(method, method.values):
            continue
        instead = find_otherwise("algorithm", method.values, partial(sends_increments, method))
        said.append(
            f"privacy.clip: algorithm '{method.name}' with these settings sends models, which are "
            f"scaled down to norm {clip:g}, and so is the server's; "
            f"use {instead or 'an algorithm that sends increments, such as fedavg'}"
        )
    return list(dict.fromkeys(said))


def _note_idle_policies(points: Sequence[Point]) -> list[str]:
    """Return a sentence if a power policy is given and no point's transport uses one.

    The default policy does not count.
    """
    scenarios = [point.scenario for point in points]
    transports = dict.fromkeys(scenario.transport.name for scenario in scenarios)
    if any(registry.load_component("transport", name).obeys_power for name in transports):
        return []
    default = Choice("power").make_default()
    policies = dict.fromkeys(one.power.name for one in scenarios if one.power != default)
    if not policies:
        return []
    obeying = registry.list_fitting("transport", lambda one: one.obeys_power)
    return [
        f"power: {' and '.join(map(repr, policies))} without effect, because transport "
        f"{' and '.join(map(repr, transports))} uses no power policy: every device sends at full "
        f"power; use transport {' or '.join(obeying)}"
    ]


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
