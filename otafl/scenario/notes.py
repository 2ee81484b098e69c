"""Valid settings without effect, which are probably not intended."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from otafl.algorithms.custom import sends_increments
from otafl.core import registry
from otafl.core.choices import Choice
from otafl.core.problems import Path
from otafl.scenario.checks import find_otherwise
from otafl.scenario.keys import format_path, iterate_sections
from otafl.scenario.power_budgets import describe_power_budgets, find_power_constraint
from otafl.scenario.schema import Point, Scenario
from otafl.user_code.custom_part import CustomPart

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
    return [
        *_note_idle_policies(points),
        *_note_idle_settings(points),
        *_note_clipped_models(points),
        *([budgets] if budgets else ()),
        *_collect_section_notes(points),
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


def _collect_section_notes(points: Sequence[Point]) -> list[str]:
    """Return the notes of the sections of the points, each sentence once."""
    said: list[str] = []
    for names, about in (
        (("algorithm",), ("algorithm", "transport", "data")),
        (("transport", "topology"), ("transport", "topology", "channel", "seed")),
        (("channel",), ("channel", "training")),
    ):
        different: dict[str, Scenario] = {}
        for scenario in (point.scenario for point in points):
            key = [getattr(scenario, name) for name in about]
            different.setdefault(repr((*key, scenario.devices.count)), scenario)
        for scenario in itertools.islice(different.values(), MAX_ASKED):
            for name in names:
                said += getattr(scenario, name).values.list_notes(scenario)
    return list(dict.fromkeys(said))


def _note_idle_settings(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each given setting without effect at all points with its component.

    A setting with several values is noted once, with the first.
    """
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
    return list(dict.fromkeys(text for place, text in idle.items() if place not in used))


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
