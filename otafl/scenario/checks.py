"""Check what no section of a scenario can tell alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set
from typing import Any, get_args

from pydantic import ValidationError

from otafl.algorithms.custom import averages, class_of
from otafl.core import custom, registry
from otafl.core.problems import Path, Problem
from otafl.core.settings import Settings
from otafl.scenario.errors import problems_of
from otafl.scenario.keys import sections
from otafl.scenario.schema import Scenario


def check(scenario: Scenario) -> list[Problem]:
    """Return everything that is wrong between the sections of a point; within
    `custom.without_code` what can be told without code of the user's."""
    found = [one for path, section in sections(scenario) for one in _told(scenario, path, section)]
    if any(one.path[0] == "algorithm" for one in found):
        return found  # a method that cannot be had needs nothing of others
    for look in (_server, _transport):
        with contextlib.suppress(custom.NotImported):
            found += look(scenario)
    return found


def _told(scenario: Scenario, path: Path, section: Settings) -> list[Problem]:
    """Return what a section finds wrong with the rest of the scenario."""
    found: list[Problem] = []
    try:
        for one in section.check(scenario):
            found.append(one)  # kept, should the next question need code that is not imported
    except custom.NotImported:
        pass
    except ValidationError as error:  # of the settings of a component of the user's
        tree: Any = section.options  # type: ignore[attr-defined]
        for part in reversed(path):
            tree = {part: tree}
        return problems_of(error, tree, Scenario)
    return found


def _server(scenario: Scenario) -> Iterator[Problem]:
    """Check that there is an averaged increment for the server to optimise over."""
    algorithm, server = scenario.algorithm, scenario.server.name
    if server == "average" or averages(class_of(algorithm)):
        return
    would_do = [
        name
        for name in registry.names("algorithm")
        if averages(registry.component("algorithm", name))
    ]
    text = (
        f"server: '{server}' steps along averaged increments, which algorithm "
        f"'{algorithm.name}' does not have; server: average would do, or one of the algorithms "
        f"{', '.join(would_do)}"
    )
    yield Problem(text, ("server",), (("algorithm",),))


def _or_otherwise(method: Any, gives: Set[str]) -> str:
    """Say with which choice of its own the method could do with what the server gets."""
    settings, kind = method.values, class_of(method)
    for key, info in type(settings).model_fields.items():
        would_do = []
        for choice in get_args(info.annotation) if key != "name" else ():
            with contextlib.suppress(ValueError, TypeError):  # one that another key forbids
                other = type(settings).model_validate(settings.model_dump() | {key: choice})
                would_do += [str(choice)] if kind.needs_of(other) in gives else []
        if would_do:
            return f"; or algorithm.{key}: {' or '.join(would_do)}"
    return ""


def _transport(scenario: Scenario) -> Iterator[Problem]:
    """Check that the server gets what the method needs of the updates."""
    method = scenario.algorithm
    needs, transport = class_of(method).needs_of(method.values), scenario.transport
    kind = registry.component("transport", transport.name)
    if needs in kind.gives:
        return
    would_do = [
        name
        for name in registry.names("transport")
        if needs in registry.component("transport", name).gives
    ]
    text = (
        f"transport: '{transport.name}' gives the server only the {' and '.join(kind.gives)} "
        f"of the updates, but algorithm '{scenario.algorithm.name}' needs {needs} of them; "
        f"transports that would do: {', '.join(would_do)}{_or_otherwise(method, kind.gives)}"
    )
    yield Problem(text, ("transport",), (("algorithm",),))
