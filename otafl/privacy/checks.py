"""Checks of what differential privacy by the channel cannot account for, each with the sentence
that refuses it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from otafl.core import registry
from otafl.core.contracts import Payload
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import iterate_disclosures
from otafl.power.base import PowerPolicy
from otafl.privacy import accounting
from otafl.selection.base import Selection

ENERGY = (
    "bounds on energy limit what devices send by what they have sent before, which no noise hides; "
    "with privacy.clip devices on mains without devices.round_budget_j would do"
)


def find_problems(scenario: Any) -> Iterator[Problem]:
    """Yield what cannot be accounted for in a scenario whose devices clip their payloads."""
    transport, devices = scenario.transport.name, scenario.devices
    if not registry.load_component("transport", transport).accounts_privacy:
        text = (
            f"nobody accounts for what transport '{transport}' tells of a device's data; "
            "transport: over_the_air would do, or no privacy.clip"
        )
        yield make_problem(text, "privacy.clip", "transport")
    if _uses_updates(devices.selection):
        text = (
            f"'{devices.selection.name}' goes by the updates themselves, which no noise hides; "
            "with privacy.clip one that goes by channels or chance would do"
        )
        yield make_problem(text, "devices.selection", "privacy.clip")
    if devices.round_budget_j is not None:
        yield make_problem(ENERGY, "devices.round_budget_j", "privacy.clip")
    if scenario.faults.has_rejection:
        text = (
            "a device that keeps an update back as it is not finite tells of its data by its "
            "silence; with privacy.clip, which sends zeros in its place, refuse_nonfinite: false "
            "would do"
        )
        yield make_problem(text, "faults.refuse_nonfinite", "privacy.clip")
    yield from _find_revealing(scenario)
    if getattr(_get_values(devices.selection), "sampling_probability", None) is not None:
        yield from _find_not_hidden(devices)


def _get_values(section: Any) -> Any:
    """Return a section's settings; None for those of the user's class that cannot be had, which
    its own check refuses."""
    try:
        return section.values
    except (UserError, ValidationError):
        return None


def _get_class(table: str, section: Any) -> Any:
    """Return the class of a component, the user's where it is his own."""
    return getattr(section, "component_class", None) or registry.load_component(table, section.name)


def _uses_updates(section: Any) -> bool:
    """Return whether a selection chooses by what devices would send."""
    try:
        kind = _get_class("selection", section)
    except UserError:
        return False
    return kind.select_transmitters is not Selection.select_transmitters


def _find_revealing(scenario: Any) -> Iterator[Problem]:
    """Yield the choices by which devices reveal their data, of the components of all tables."""
    for table in registry.TABLES.values():
        values = _get_values(functools.reduce(getattr, table.path, scenario))
        for name, mark in () if values is None else iterate_disclosures(type(values)):
            if getattr(values, name) != mark.choice:
                continue
            choice, instead = (
                str(one).lower() if isinstance(one, bool) else one
                for one in (mark.choice, mark.instead)
            )
            text = (
                f"{choice} tells the server {mark.what}, which no noise hides; with privacy.clip "
                f"{name}: {instead} would do"
            )
            yield make_problem(text, f"{table.section}.{name}", "privacy.clip")


def _find_not_hidden(devices: Any) -> Iterator[Problem]:
    """Yield what lets a device take part otherwise than with a probability of its own in each
    slot."""
    key, name = "devices.selection", devices.selection.name
    if devices.participants is not None:
        text = (
            f"got {devices.participants}; with privacy.clip {key}: '{name}' is accounted "
            "for as drawing each device by itself, as many as there come; leave it out"
        )
        yield make_problem(text, "devices.participants", key, "privacy.clip")
    if devices.senders is not None:
        text = (
            f"got {devices.senders}, which makes a device's part depend on the others that are "
            f"drawn, and {key}: '{name}' hides who is; with privacy.clip leave it out"
        )
        yield make_problem(text, "devices.senders", key, "privacy.clip")
    late = (
        f"lets a device send in a slot that it was not drawn for, and {key}: '{name}' hides who "
        "takes part; with privacy.clip"
    )
    if devices.protocol.goes_on:
        text = f"'{devices.protocol.name}' {late} protocol: rounds would do"
        yield make_problem(text, "devices.protocol", key, "privacy.clip")
    elif devices.late == "next":
        yield make_problem(
            f"'next' {late} late: drop would do", "devices.late", key, "privacy.clip"
        )


def refuse_ideal(payload: Payload) -> None:
    """Raise UserError for a payload with a group on the ideal route."""
    for group in payload:
        if group.route == "ideal":
            names = ", ".join(f"'{name}'" for name in group.tensors)
            raise UserError(
                f"privacy.clip: the algorithm sends {names} on the ideal route, in the clear and "
                "unclipped; algorithm.bias_mode: ota, if it has that key, or groups on the uplink "
                "alone would do, or no privacy.clip"
            )


def refuse_parts(scenario: Any, policy: PowerPolicy, mains: bool, bounded: bool) -> None:
    """Raise UserError where what devices send with tells of their data or of who else takes part,
    or a bound cannot be kept.

    Parameters
    ----------
    scenario : of one of the trials.
    policy : of power.
    mains : no device lives on a battery.
    bounded : epsilon is bounded in some trial.
    """
    if not mains:
        raise UserError(f"devices.compute: {ENERGY}")
    named = f"power: '{scenario.power.name}'"
    if policy.needs_variation:
        raise UserError(
            f"{named} goes by how payloads vary over the devices, side information that no noise "
            "hides; with privacy.clip a policy that does not would do"
        )
    if bounded:
        _check_can_bound(scenario, policy, named)
    if scenario.devices.selection.values.sampling_probability is not None:
        _check_can_sample(scenario, policy, named)


def _check_can_bound(scenario: Any, policy: PowerPolicy, named: str) -> None:
    """Raise UserError where the power of a round cannot be limited to what it tells."""
    if policy.power_constraint != "peak":
        raise UserError(
            f"{named} does not keep the power budget in every round, and privacy.epsilon bounds "
            "every round; a policy that does would do, such as full, gbma or tci with constraint: "
            "peak"
        )
    if not policy.is_adaptive:
        raise UserError(
            f"{named} plans with the whole power budget and sends nothing with less, which "
            "privacy.epsilon leaves it; another policy would do, such as full or gbma, or "
            "privacy.clip alone, which accounts for what is told"
        )
    if not _get_class("csi", scenario.csi).is_perfect:
        raise UserError(
            f"csi: with '{scenario.csi.name}' devices do not know how well they are heard, and so "
            "not which power keeps privacy.epsilon; csi: perfect would do, or privacy.clip alone, "
            "which accounts for what is told"
        )


def _check_can_sample(scenario: Any, policy: PowerPolicy, named: str) -> None:
    """Raise UserError where others' signals tell whether a device was drawn, what a device sends
    with has no bound, the bound is not split evenly, or the package is not there that accounts for
    it."""
    said = f"and devices.selection: '{scenario.devices.selection.name}' hides who takes part;"
    remedy = f"with privacy.clip {' or '.join(_fit_for_sampling())} would do"
    if not policy.alone:
        raise UserError(f"{named} sets a device's power by who else takes part, {said} {remedy}")
    if policy.power_constraint != "peak":
        raise UserError(
            f"{named} does not keep the power budget in every round, with which every round is "
            f"charged, {said} {remedy}"
        )
    if scenario.training.weights != "uniform":
        raise UserError(
            f"training.weights: '{scenario.training.weights}' scales what a device sends by who "
            f"else takes part, {said} with privacy.clip uniform would do"
        )
    if scenario.privacy.split != "even":
        raise UserError(
            f"privacy.split: '{scenario.privacy.split}' goes by what a device has left, {said} "
            "even would do"
        )
    accounting.import_dp_accounting()


def _fit_for_sampling() -> Sequence[str]:
    """Return the registered policies whose power depends on no other device."""
    return [
        name
        for name in registry.list_names("power")
        if registry.load_component("power", name).alone
    ]
