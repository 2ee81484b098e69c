"""Checks that refuse scenarios whose privacy cannot be accounted for."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from otafl.core import registry
from otafl.core.contracts import Payload
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings, iterate_disclosures
from otafl.power.base import PowerPolicy
from otafl.privacy import accounting
from otafl.selection.base import Selection

ENERGY = (
    "bounds on energy make transmissions depend on earlier ones, which no noise hides; with "
    "privacy.clip, use devices on mains without devices.round_budget_j"
)


def find_problems(scenario: Any) -> Iterator[Problem]:
    """Yield the problems of a scenario whose devices clip their payloads."""
    transport, devices = scenario.transport.name, scenario.devices
    if not registry.load_component("transport", transport).accounts_privacy:
        text = (
            f"transport '{transport}' does not account for what it reveals of a device's data; "
            "use transport: over_the_air, or leave privacy.clip out"
        )
        yield make_problem(text, "privacy.clip", "transport")
    if _uses_updates(devices.selection):
        text = (
            f"'{devices.selection.name}' depends on the updates, which no noise hides; with "
            "privacy.clip, use a selection by channels or at random"
        )
        yield make_problem(text, "devices.selection", "privacy.clip")
    if devices.round_budget_j is not None:
        yield make_problem(ENERGY, "devices.round_budget_j", "privacy.clip")
    if scenario.faults.has_rejection:
        text = (
            "a device that does not send an update that is not finite reveals its data by its "
            "silence; use another attack, or leave privacy.clip out"
        )
        yield make_problem(text, "faults.attack", "privacy.clip")
    yield from _find_revealing(scenario)
    if getattr(_get_values(devices.selection), "sampling_probability", None) is not None:
        yield from _find_not_hidden(devices)


def _get_values(section: Any) -> Any:
    """Return a section's settings, None for a user-defined class that cannot be read.

    The class's own check refuses it.
    """
    try:
        return section.values
    except (UserError, ValidationError):
        return None


def _get_class(table: str, section: Any) -> Any:
    """Return the class of a component, which can be user-defined."""
    return getattr(section, "component_class", None) or registry.load_component(table, section.name)


def _uses_updates(section: Any) -> bool:
    """Return whether a selection depends on the updates of the devices."""
    try:
        kind = _get_class("selection", section)
    except UserError:
        return False
    return kind.select_transmitters is not Selection.select_transmitters


def _find_revealing(scenario: Any) -> Iterator[Problem]:
    """Yield the settings, in all tables, with which devices reveal their data."""
    for table in registry.TABLES.values():
        section = functools.reduce(getattr, table.path, scenario)
        values = _get_values(section) if isinstance(section, Settings) else None
        for name, mark in () if values is None else iterate_disclosures(type(values)):
            if getattr(values, name) != mark.choice:
                continue
            choice, instead = (
                str(one).lower() if isinstance(one, bool) else one
                for one in (mark.choice, mark.instead)
            )
            text = (
                f"{choice} reveals to the server {mark.what}, which no noise hides; with "
                f"privacy.clip, use {name}: {instead}"
            )
            yield make_problem(text, f"{table.section}.{name}", "privacy.clip")


def _find_not_hidden(devices: Any) -> Iterator[Problem]:
    """Yield the settings with which a device does not take part independently in each slot."""
    key, name = "devices.selection", devices.selection.name
    if devices.participants is not None:
        text = (
            f"got {devices.participants}; with privacy.clip, {key}: '{name}' is accounted for as "
            "an independent draw of each device, of any number; leave it out"
        )
        yield make_problem(text, "devices.participants", key, "privacy.clip")
    if devices.senders is not None:
        text = (
            f"got {devices.senders}, which makes a transmission depend on other drawn devices, "
            f"and {key}: '{name}' hides these; with privacy.clip, leave it out"
        )
        yield make_problem(text, "devices.senders", key, "privacy.clip")
    late = (
        f"lets a device send in a slot that it was not drawn for, and {key}: '{name}' hides the "
        "participants; with privacy.clip, use"
    )
    if devices.protocol.goes_on:
        text = f"'{devices.protocol.name}' {late} protocol: rounds"
        yield make_problem(text, "devices.protocol", key, "privacy.clip")
    elif devices.late == "next":
        yield make_problem(f"'next' {late} late: drop", "devices.late", key, "privacy.clip")


def refuse_ideal(payload: Payload) -> None:
    """Raise UserError for a payload with a group on the ideal route."""
    for group in payload:
        if group.route == "ideal":
            names = ", ".join(f"'{name}'" for name in group.tensors)
            raise UserError(
                f"privacy.clip: the algorithm sends {names} on the ideal route, in the clear and "
                "unclipped; use algorithm.bias_mode: ota, if it has that key, or groups only on "
                "the uplink, or leave privacy.clip out"
            )


def refuse_parts(scenario: Any, policy: PowerPolicy, mains: bool, bounded: bool) -> None:
    """Refuse parts whose signals reveal data or participants, or that cannot keep a bound.

    Parameters
    ----------
    scenario : Scenario
        Scenario of one of the trials.
    policy : PowerPolicy
        Power policy.
    mains : bool
        Whether no device has a battery.
    bounded : bool
        Whether a trial bounds epsilon.

    Raises
    ------
    UserError
        If a part does not fit.
    """
    if not mains:
        raise UserError(f"devices.compute: {ENERGY}")
    named = f"power: '{scenario.power.name}'"
    if policy.needs_variation or policy.needs_segment_power:
        what = "variation of payloads over the devices"
        raise UserError(
            f"{named} needs the {what if policy.needs_variation else 'power of each segment'}, "
            "side information that no noise hides; with privacy.clip, use another policy"
        )
    if bounded:
        _check_can_bound(scenario, policy, named)
    if scenario.devices.selection.values.sampling_probability is not None:
        # privacy amplification by sampling: other signals must not reveal whether a device was
        # drawn, every transmission needs a bound, and rounds have equal shares of it
        said = f"and devices.selection: '{scenario.devices.selection.name}' hides the participants;"
        fitting = registry.list_fitting("power", lambda one: one.alone)
        remedy = f"with privacy.clip, use {' or '.join(fitting)}"
        if not policy.alone:
            raise UserError(f"{named} sets a device's power by the participants, {said} {remedy}")
        if policy.power_constraint != "peak":
            raise UserError(
                f"{named} does not keep the power budget in every round, for which every round is "
                f"charged, {said} {remedy}"
            )
        if scenario.training.weights != "uniform":
            raise UserError(
                f"training.weights: '{scenario.training.weights}' scales transmissions by the "
                f"participants, {said} with privacy.clip, use uniform"
            )
        if scenario.privacy.split != "even":
            raise UserError(
                f"privacy.split: '{scenario.privacy.split}' depends on earlier rounds of a device, "
                f"{said} use even"
            )
        accounting.import_dp_accounting()


def _check_can_bound(scenario: Any, policy: PowerPolicy, named: str) -> None:
    """Raise UserError if the power of a round cannot be limited by its privacy loss."""
    if policy.power_constraint != "peak":
        raise UserError(
            f"{named} does not keep the power budget in every round, and privacy.epsilon bounds "
            "every round; use a policy that does, such as full, gbma or tci with constraint: peak"
        )
    if not policy.is_adaptive:
        raise UserError(
            f"{named} plans with the whole power budget, and sends nothing with the lower one that "
            "privacy.epsilon leaves; use another policy, such as full or gbma, or only "
            "privacy.clip, which accounts for the privacy loss"
        )
    if not _get_class("csi", scenario.csi).is_perfect:
        raise UserError(
            f"csi: with '{scenario.csi.name}' devices do not know their channels, and so not the "
            "power that keeps privacy.epsilon; use csi: perfect, or only privacy.clip, which "
            "accounts for the privacy loss"
        )
