"""Say what a scenario asks for that makes no difference: no error, but hardly what is meant."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from otafl.algorithms.custom import class_of
from otafl.core import registry
from otafl.core.choices import Choice
from otafl.scenario.checks import find_otherwise
from otafl.scenario.schema import Point, Scenario

MOST_ASKED = 50
"""Different methods and data, or transports, topologies and channels, of a sweep that are asked for
notes of their own."""


def notes_on(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each such thing: power policies that are asked by nobody, models that
    are clipped, and what methods, transports and topologies say themselves.
    """
    return [*_idle_policies(points), *_clipped_models(points), *_of_sections(points)]


def _clipped_models(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each method that sends models, which the norm of `privacy.clip`
    bounds, where an increment's is meant.
    """
    said = []
    for scenario in (point.scenario for point in points):
        method, clip = scenario.algorithm, scenario.privacy.clip
        kind = class_of(method)
        if clip is None or kind.sends_increments(method.values):
            continue
        instead = find_otherwise("algorithm", method.values, kind.sends_increments)
        said.append(
            f"privacy.clip: algorithm '{method.name}' with these settings sends models, which are "
            f"scaled down to norm {clip:g}, and so is the server's; "
            f"{instead or 'an algorithm that sends increments, such as fedavg,'} would do"
        )
    return list(dict.fromkeys(said))


def _of_sections(points: Sequence[Point]) -> list[str]:
    """Return what methods, transports and topologies of the points say, each sentence once."""
    said: list[str] = []
    for names, about in (
        (("algorithm",), ("algorithm", "transport", "data")),
        (("transport", "topology"), ("transport", "topology", "channel", "seed")),
    ):
        different: dict[str, Scenario] = {}
        for scenario in (point.scenario for point in points):
            key = [getattr(scenario, name) for name in about]
            different.setdefault(repr((*key, scenario.devices.count)), scenario)
        for scenario in itertools.islice(different.values(), MOST_ASKED):
            for name in names:
                said += getattr(scenario, name).values.notes(scenario)
    return list(dict.fromkeys(said))


def _idle_policies(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each transport that asks no power policy, where one is given.

    The default policy alone is none of them, whoever wrote it out; nor is one that has an effect at
    other points of the sweep.
    """
    default = Choice("power").default()
    idle: dict[str, dict[str, bool]] = {}
    obeyed = False
    for scenario in (point.scenario for point in points):
        kind = registry.component("transport", scenario.transport.name)
        obeyed |= kind.obeys_power
        if not kind.obeys_power and "power" in scenario.model_fields_set:
            idle.setdefault(scenario.transport.name, {})[scenario.power.name] = (
                scenario.power == default
            )
    told = {
        transport: policies
        for transport, policies in idle.items()
        if len(policies) > 1 or not (obeyed or all(policies.values()))
    }
    if not told:  # the most frequent case, in which no other transport is imported
        return []
    obeying = [
        name
        for name in registry.names("transport")
        if registry.component("transport", name).obeys_power
    ]
    return [
        f"power: {' and '.join(map(repr, policies))} without effect, as transport '{transport}' "
        f"asks no power policy: every device sends at full power; {' or '.join(obeying)} asks it"
        for transport, policies in told.items()
    ]
