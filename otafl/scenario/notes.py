"""Valid settings without effect, which are probably not intended."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from otafl.algorithms.custom import sends_increments
from otafl.core import registry
from otafl.core.choices import Choice
from otafl.scenario.checks import find_otherwise
from otafl.scenario.power_budgets import describe_power_budgets, find_power_constraint
from otafl.scenario.schema import Point, Scenario

MAX_ASKED = 50
"""Largest number of combinations (of method and data, or of transport, topology and channel) that
are asked for notes."""


def list_notes(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each valid setting that is probably not intended.

    These are power policies and settings of transports without effect, clipped models, power
    budgets of different kinds, and the notes of methods, transports and topologies.
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
    """Return the notes of methods, transports and topologies of the points, each sentence once."""
    said: list[str] = []
    for names, about in (
        (("algorithm",), ("algorithm", "transport", "data")),
        (("transport", "topology"), ("transport", "topology", "channel", "seed")),
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
    """Return the sentences of a transport's idle settings that hold at all points with it."""
    idle: dict[str, dict[str, None]] = {}
    for transport in (point.scenario.transport for point in points):
        found = dict.fromkeys(transport.values.list_idle_settings())
        earlier = idle.setdefault(transport.name, found)
        idle[transport.name] = {text: None for text in earlier if text in found}
    return [text for found in idle.values() for text in found]


def _note_idle_policies(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each transport without power policy, if one is given.

    Only the default policy does not count, even if it is written out, nor does one that has an
    effect at other points of the sweep.
    """
    default = Choice("power").make_default()
    idle: dict[str, dict[str, bool]] = {}
    obeyed = False
    for scenario in (point.scenario for point in points):
        kind = registry.load_component("transport", scenario.transport.name)
        obeyed |= kind.obeys_power
        if not kind.obeys_power and "power" in scenario.model_fields_set:
            idle.setdefault(scenario.transport.name, {})[scenario.power.name] = (
                scenario.power == default
            )
    reported = {
        transport: policies
        for transport, policies in idle.items()
        if len(policies) > 1 or not (obeyed or all(policies.values()))
    }
    if not reported:  # the most frequent case, in which no other transport is imported
        return []
    obeying = registry.list_fitting("transport", lambda one: one.obeys_power)
    return [
        f"power: {' and '.join(map(repr, policies))} without effect, because transport "
        f"'{transport}' uses no power policy: every device sends at full power; use transport "
        f"{' or '.join(obeying)}"
        for transport, policies in reported.items()
    ]
