"""Laws of every registered power policy under Rayleigh fading.

Symbol powers and budgets are unequal. The laws hold at three signal-to-noise ratios and three
device counts, with only some devices transmitting, and over a path loss.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from otafl.core import registry
from otafl.power.base import PowerPolicy
from otafl.validation import sheet
from otafl.validation.bench import Bench, BenchRecord, Rig
from otafl.validation.checks import (
    Check,
    check_at_most,
    check_exact,
    check_mean_at_most,
    check_normal,
    check_normal_errors,
    check_ratios,
    state_law,
)

SNRS_DB = (0.0, 10.0, 20.0)
COUNTS = (3, 10, 30)
BUDGETS_DB = (0.0, -3.0, 2.0)
REALS = 64
TRIALS = 32
SMCV_VARIATION = 2.0
"""Given variation, with which the scalars do not depend on the symbols beyond their powers."""

POLICIES = registry.list_names("power")

SHEET = "(1/K^2) [sum m (c - 1)^2 + N / eta]"

SENDERS, POPULATION = (1, 2, 4, 7, 8), 10
"""Transmitters, and number of devices."""


def build_settings(policy: str) -> dict[str, Any]:
    """Return the section of a policy with few changes of its defaults.

    They make it quick, and its scalars independent of the symbols beyond their powers.
    """
    return {"name": policy, **registry.load_settings_class("power", policy).small}


def _build_policy(policy: str) -> PowerPolicy:
    kind: type[PowerPolicy] = registry.load_component("power", policy)
    return kind(**build_settings(policy))


def _antennas(policy: str) -> int:
    """Return the number of the server's antennas, several for a policy that is made for them."""
    return 4 if "channel.antennas" in registry.load_settings_class("power", policy).example else 1


def _point(policy: str, snr_db: float) -> dict[str, Any]:
    channel = {"name": "rayleigh", "snr_db": snr_db, "device_budget_db": BUDGETS_DB}
    point: dict[str, Any] = {"channel": channel, "power": build_settings(policy)}
    if _antennas(policy) > 1:
        channel["antennas"] = _antennas(policy)
        if registry.load_component("power", policy).receiver == "uniform_forcing":
            # laws hold for any f, so a rough search is enough
            point["receiver"] = {"name": "uniform_forcing", "iterations": 5}
    return point


@functools.lru_cache(maxsize=64)
def _record(bench: Bench, policy: str, devices: int) -> BenchRecord:
    """Record all signal-to-noise ratios in one stack, point by point."""
    points = [_point(policy, snr_db) for snr_db in SNRS_DB]
    rig = bench.build_rig(devices, TRIALS, points)
    # the time of combiners is per round, and hardly depends on the number of trials
    return rig.record(bench.scale_size(4 if _antennas(policy) > 1 else 16), REALS)


@dataclass(frozen=True)
class _Case:
    """Measurement for a device count at a signal-to-noise ratio.

    Parameters
    ----------
    name : str
        Name of the case.
    record : BenchRecord
        The measurement.
    states : sheet.States
        Fading states over rounds and trials.
    chosen : sheet.Scalars
        Scalars of the policy.
    wanted : sheet.Scalars, optional
        Scalars of the formula sheet, if it has the policy.
    """

    name: str
    record: BenchRecord
    states: sheet.States
    chosen: sheet.Scalars
    wanted: sheet.Scalars | None


@functools.lru_cache(maxsize=64)
def _cases(bench: Bench, policy: str) -> tuple[_Case, ...]:
    cases = []
    for devices in COUNTS:
        for index, snr_db in enumerate(SNRS_DB):
            record = _record(bench, policy, devices).select_point(index, len(SNRS_DB))
            cases.append(_case(f"K={devices}, {snr_db:g} dB", record, policy))
    return tuple(cases)


def _case(name: str, record: BenchRecord, policy: str) -> _Case:
    at, antennas = record.flat, _antennas(policy)
    states = sheet.States(at.h, at.m, at.budget, at.gain, at.noise, antennas, _build_policy(policy))
    rule = sheet.RULES.get(policy)
    chosen = sheet.Scalars(at.c, at.eta, at.active)
    return _Case(name, record, states, chosen, rule(states) if rule else None)


@state_law("power: scalars as on the formula sheet", "papers of the policies", "{}", sheet.RULES)
def _scalars(bench: Bench, policy: str) -> Iterator[Check]:
    for case in _cases(bench, policy):
        yield _compare_with_reference(policy, case)


def _compare_with_reference(policy: str, case: _Case) -> Check:
    """Compare the active devices, and the objective at the saved c and eta with that of the sheet.

    It is compared at the largest difference. For an optimal rule the sheet has its minimum.
    """
    assert case.wanted is not None
    if (case.wanted.active != case.chosen.active).any():
        return check_exact(1.0, math.nan, case=f"{case.name}, transmitters")
    on = case.wanted.active.any(1)
    found, law = (_objective(policy, one, case.states)[on] for one in (case.chosen, case.wanted))
    return check_ratios(found, law, 1e-5, case.name)


def _objective(policy: str, scalars: sheet.Scalars, states: sheet.States) -> np.ndarray:
    if policy == "smcv":
        d = np.sqrt(states.m) * (scalars.c - 1.0)
        return sheet.smcv_objective(d, states.noise / scalars.eta, SMCV_VARIATION)
    return sheet.compute_error(scalars, states.m, states.noise)


@state_law("power: error given the channel", SHEET, "{}", POLICIES)
def _error(bench: Bench, policy: str) -> Iterator[Check]:
    for case in _cases(bench, policy):
        yield _check_error(case)


def _check_error(case: _Case) -> Check:
    """Compare the squared error of every coordinate with its closed form, which is chi-square.

    For a policy that the sheet does not have, it is that of the chosen c and eta.
    """
    law = sheet.compute_error(case.wanted or case.chosen, case.states.m, case.states.noise)
    return check_normal_errors(law, case.record, case.name)


@state_law("power: power within its budget", "budget on |p|^2 m", "{}", POLICIES)
def _power(bench: Bench, policy: str) -> Iterator[Check]:
    """Bound the largest share of the budget in any round.

    For an average budget it is the mean over rounds and devices, trial by trial.
    """
    keeps = _build_policy(policy).power_constraint
    for case in _cases(bench, policy):
        record = case.record
        used = record.power / record.budget
        if keeps == "peak":
            yield check_at_most(1.0, float(used.max()), case=case.name)
        elif keeps == "average":
            yield check_mean_at_most(1.0, used.mean((0, 2)), case.name)
        else:  # there is no budget, and the report has the used power
            spent = np.abs(record.p) ** 2 * record.m / record.budget
            yield check_ratios(used, spent, case=case.name)


@state_law("power: NMSE follows from h, p, c, eta", "a^H Gram a + N / eta", "{}", POLICIES)
def _nmse(bench: Bench, policy: str) -> Iterator[Check]:
    """Compare the reported NMSE with imperfect estimates, residual phases and unequal weights."""
    devices = 6
    weights = [1.0 + k for k in range(devices)]
    point = _point(policy, 10.0) | {
        "csi": {"name": "error", "variance": 0.1},
        "impairments": {"residual_phase_rad": 0.4},
    }
    rig = bench.build_rig(devices, TRIALS, point, weights=weights)
    record = rig.record(bench.scale_size(16), REALS)
    on_air = (record.weight * record.active).sum(-1)
    on = on_air > 0
    unit = 1.0 / (devices * np.where(on, on_air, 1.0))
    noise = record.noise / record.eta * unit**2
    law = (record.distortion + REALS * noise * on) / record.exact
    spread = np.sqrt(4 * record.distortion * noise + 2 * REALS * noise**2) * on / record.exact
    deviation = float(np.sqrt((spread**2).sum())) / law.size
    yield check_normal(float(law.mean()), float(record.nmse.mean()), deviation)


@state_law("power: K counts the transmitters", SHEET, "{}", POLICIES)
def _check_partial_participation(bench: Bench, policy: str) -> Iterator[Check]:
    """Check scalars and error if five of ten devices transmit, and that the others are silent."""
    rig = bench.build_rig(POPULATION, TRIALS, _point(policy, 10.0), senders=SENDERS)
    yield from _scalars_and_error(bench, rig, policy)
    silent = [device for device in range(POPULATION) if device not in SENDERS]
    report = rig.send(rig.draw_symbols(REALS, 0), 0)[1]
    yield check_exact(0.0, float(report.power[:, silent].max()), 0.0, "power of the others")


def _scalars_and_error(bench: Bench, rig: Rig, policy: str) -> Iterator[Check]:
    case = _case("", rig.record(bench.scale_size(8), REALS), policy)
    if case.wanted is not None:
        yield replace(_compare_with_reference(policy, case), case="scalars")
    yield replace(_check_error(case), case="error")
