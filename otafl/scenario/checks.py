"""Checks between the sections of a scenario."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Set
from typing import Any, cast, get_args

from pydantic import ValidationError

from otafl.algorithms.custom import (
    averages_increments,
    find_label_problems,
    get_class,
    sends_increments,
)
from otafl.core import registry
from otafl.core.problems import Path, Problem, make_problem
from otafl.core.settings import Settings
from otafl.models.starts.base import Start
from otafl.scenario.errors import to_problems
from otafl.scenario.keys import format_path, iterate_sections
from otafl.scenario.schema import Scenario


def check(scenario: Scenario) -> list[Problem]:
    """Return every conflict between the sections of a point."""
    found: list[Problem] = []
    for path, section in iterate_sections(scenario):
        if type(section).check is Settings.check:
            continue
        try:
            found += section.check(scenario)
        except ValidationError as error:  # of the settings of a user-defined component
            tree: Any = section.options  # type: ignore[attr-defined]
            for part in reversed(path):
                tree = {part: tree}
            found += to_problems(error, tree, Scenario, path)
    if any(one.path[0] == "algorithm" for one in found):
        return found  # a method that cannot be made needs nothing of others
    wrong = {one.path for one in found}
    for look in (
        _check_labels,
        _check_exclusions,
        _check_server,
        _check_transport,
        _check_snr_growth,
        functools.partial(_check_increments, wrong=wrong),
    ):
        found += look(scenario)
    return found


def _check_labels(scenario: Scenario) -> Iterator[Problem]:
    """Check that the method can train on the labels of the data set."""
    method = scenario.algorithm
    for text in find_label_problems(method, scenario.data.labels):
        yield Problem(text, ("algorithm",), (("data",),))
    if scenario.faults.attack.changes_labels and scenario.data.labels not in (None, "classes"):
        text = (
            f"'{scenario.faults.attack.name}' replaces classes by others, and the labels of the "
            "data set are no classes; use another attack"
        )
        yield make_problem(text, "faults.attack", "data")


def _check_exclusions(scenario: Scenario) -> Iterator[Problem]:
    """Check that the method supports a given start and local work in epochs."""
    method, start = scenario.algorithm, getattr(scenario.model, "start", None)
    given = repr(start.name) if isinstance(start, Start) and start.gives_weights else None
    for reason, key, value, remedy in (
        ("start", "model.start", given, "start: drawn, or another algorithm such as fedavg"),
        ("epochs", "training.local_epochs", scenario.training.local_epochs, "training.local_steps"),
    ):
        why = get_class(method).excludes.get(reason)
        if why and value is not None:
            text = f"got {value}, but algorithm '{method.name}' {why}; use {remedy}"
            yield make_problem(text, key, "algorithm")


def _check_server(scenario: Scenario) -> Iterator[Problem]:
    """Check that the server optimiser has an averaged increment."""
    algorithm, server = scenario.algorithm, scenario.server.name
    if server == "average" or averages_increments(get_class(algorithm)):
        return
    fitting = registry.list_fitting("algorithm", averages_increments)
    text = (
        f"'{server}' steps along averaged increments, which algorithm "
        f"'{algorithm.name}' does not have; use server: average, or one of the algorithms "
        f"{', '.join(fitting)}"
    )
    yield make_problem(text, "server", "algorithm")


def find_otherwise(section: str, settings: Settings, fits: Callable[[Settings], bool]) -> str:
    """Write which choice of one of its keys makes a section fit; empty if none does."""
    for key, info in type(settings).model_fields.items():
        choices = (False, True) if info.annotation is bool else get_args(info.annotation)
        found = []
        for choice in choices if key != "name" else ():
            with contextlib.suppress(ValueError, TypeError):  # one that another key forbids
                other = type(settings).model_validate(settings.model_dump() | {key: choice})
                found += [json.dumps(choice).strip('"')] if fits(other) else []
        if found:
            return f"{section}.{key}: {' or '.join(found)}"
    return ""


def _check_increments(scenario: Scenario, wrong: Set[Path]) -> Iterator[Problem]:
    """Check that devices send increments if a component of a section requires them.

    Parameters
    ----------
    wrong : set of Path
        Paths of known errors; sections with one are skipped.
    """
    method = scenario.algorithm
    if sends_increments(method, method.values):
        return
    for path, section in iterate_sections(scenario):
        if any(one[: len(path)] == path for one in wrong):
            continue
        name, settings = format_path(path), cast(Any, section.values)
        if not settings.assumes_increments:
            continue
        otherwise = [
            find_otherwise("algorithm", method.values, functools.partial(sends_increments, method)),
            find_otherwise(name, settings, lambda other: not other.assumes_increments),
        ]
        hint = " or ".join(filter(None, otherwise)) or "an algorithm that does, such as fedavg"
        text = (
            f"{name}: '{settings.name}' {settings.assumes_increments}, so it needs increments, and "
            f"algorithm '{method.name}' with these settings sends none; use {hint}"
        )
        yield Problem(text, path, (("algorithm",),))


def _check_transport(scenario: Scenario) -> Iterator[Problem]:
    """Check that the transport delivers the updates in the form that the method needs."""
    method = scenario.algorithm
    needs = get_class(method).describe_payload(method.values).needs
    transport = scenario.transport
    kind = registry.load_component("transport", transport.name)
    if needs in kind.provides:
        return
    fitting = registry.list_fitting("transport", lambda one: needs in one.provides)
    otherwise = find_otherwise(
        "algorithm",
        method.values,
        lambda other: get_class(method).describe_payload(other).needs in kind.provides,
    )
    text = (
        f"'{transport.name}' gives the server only the {' and '.join(kind.provides)} "
        f"of the updates, but algorithm '{scenario.algorithm.name}' needs {needs} of them; "
        f"use one of the transports {', '.join(fitting)}{otherwise and '; or '}{otherwise}"
    )
    yield make_problem(text, "transport", "algorithm")


def _check_snr_growth(scenario: Scenario) -> Iterator[Problem]:
    """Check that the transport adds the receiver's noise, which an SNR that grows lowers."""
    if not getattr(scenario.channel, "snr_growth", 0.0):
        return
    if scenario.privacy.clip is not None:
        text = "the noise that hides data must not fall; leave one of them out"
        yield make_problem(text, "channel.snr_growth", "privacy")
    if registry.load_component("transport", scenario.transport.name).supports_snr_growth:
        return
    fitting = registry.list_fitting("transport", lambda one: one.supports_snr_growth)
    text = (
        f"transport '{scenario.transport.name}' has no noise that falls from "
        f"round to round; use one of the transports {', '.join(fitting)}"
    )
    yield make_problem(text, "channel.snr_growth", "transport")
