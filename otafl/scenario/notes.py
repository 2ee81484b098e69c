"""Say what a scenario asks for that makes no difference: no error, but hardly what is meant."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.core import registry
from otafl.core.choices import Choice
from otafl.scenario.schema import Point


def notes_on(points: Sequence[Point]) -> list[str]:
    """Return a sentence for each such thing: so far, power policies that are asked by nobody.

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
    obeying = [
        name
        for name in registry.names("transport")
        if registry.component("transport", name).obeys_power
    ]
    return [
        f"power: {' and '.join(map(repr, policies))} without effect, as transport '{transport}' "
        f"asks no power policy: every device sends at full power; {' or '.join(obeying)} asks it"
        for transport, policies in idle.items()
        if len(policies) > 1 or not (obeyed or all(policies.values()))
    ]
