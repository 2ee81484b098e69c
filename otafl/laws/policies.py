"""Laws of every registered power policy under Rayleigh fading.

Symbol powers and budgets are unequal. The laws hold at three signal-to-noise ratios and three
device counts, with only some devices transmitting, and over a path loss.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from otafl.core import registry
from otafl.laws import sheet
from otafl.laws.bench import Bench, Record, Rig
from otafl.laws.checks import (
    Check,
    Law,
    check_at_most,
    check_exact,
    check_mean_at_most,
    check_normal,
    check_normal_errors,
    check_ratios,
)
from otafl.laws.mutations import Replacement, build_mutations, replace_by, scale_result
from otafl.power.base import PowerPolicy

SNRS_DB = (0.0, 10.0, 20.0)
COUNTS = (3, 10, 30)
BUDGETS_DB = (0.0, -3.0, 2.0)
REALS = 64
TRIALS = 32
SMCV_VARIATION = 2.0
"""Given variation, with which the scalars do not depend on the symbols beyond their powers."""

SHEET = "(1/K^2) [sum m (c - 1)^2 + N / eta]"

SENDERS, POPULATION = (1, 2, 4, 7, 8), 10
"""Transmitters, and number of devices."""

PATH_LOSS_DB = 115.0
"""Path loss at which 0.1 W in 1 MHz have an SNR of 14 dB, with a noise figure of 5 dB."""


def list_laws() -> Iterator[Law]:
    """List the laws of every registered policy."""
    for name in registry.list_names("power"):
        cited = registry.read_info("power", name).citation
        laws = [
            ("error given the channel", SHEET, _error),
            ("power within its budget", cited or "budget on |p|^2 m", _power),
            ("NMSE follows from h, p, c, eta", "a^H Gram a + N / eta", _nmse),
            ("K counts the transmitters", SHEET, _check_partial_participation),
            ("path loss", cited or SHEET, _check_path_loss),
        ]
        if name in sheet.RULES:
            laws.insert(0, ("scalars as on the formula sheet", cited or SHEET, _scalars))
        for what, source, run in laws:
            yield Law(f"power {name}: {what}", source, functools.partial(run, policy=name))


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
def _record(bench: Bench, policy: str, devices: int) -> Record:
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
    record : Record
        The measurement.
    states : sheet.States
        Fading states over rounds and trials.
    chosen : sheet.Scalars
        Scalars of the policy.
    wanted : sheet.Scalars, optional
        Scalars of the formula sheet, if it has the policy.
    """

    name: str
    record: Record
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


def _case(name: str, record: Record, policy: str) -> _Case:
    at, antennas = record.flat, _antennas(policy)
    states = sheet.States(at.h, at.m, at.budget, at.gain, at.noise, antennas, _build_policy(policy))
    rule = sheet.RULES.get(policy)
    chosen = sheet.Scalars(at.c, at.eta, at.active)
    return _Case(name, record, states, chosen, rule(states) if rule else None)


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


def _error(bench: Bench, policy: str) -> Iterator[Check]:
    for case in _cases(bench, policy):
        yield _check_error(case)


def _check_error(case: _Case) -> Check:
    """Compare the squared error of every coordinate with its closed form, which is chi-square.

    For a policy that the sheet does not have, it is that of the chosen c and eta.
    """
    law = sheet.compute_error(case.wanted or case.chosen, case.states.m, case.states.noise)
    return check_normal_errors(law, case.record, case.name)


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


def _check_partial_participation(bench: Bench, policy: str) -> Iterator[Check]:
    """Check scalars and error if five of ten devices transmit, and that the others are silent."""
    rig = bench.build_rig(POPULATION, TRIALS, _point(policy, 10.0), senders=SENDERS)
    yield from _scalars_and_error(bench, rig, policy)
    silent = [device for device in range(POPULATION) if device not in SENDERS]
    report = rig.send(rig.draw_symbols(REALS, 0), 0)[1]
    yield check_exact(0.0, float(report.power[:, silent].max()), 0.0, "power of the others")


def _check_path_loss(bench: Bench, policy: str) -> Iterator[Check]:
    """Check scalars and error over a path loss, with budgets in watts over thermal noise."""
    point = _point(policy, 0.0)
    point["channel"] |= {"snr_db": None, "path_loss_db": PATH_LOSS_DB}
    yield from _scalars_and_error(bench, bench.build_rig(len(SENDERS), TRIALS, point), policy)


def _scalars_and_error(bench: Bench, rig: Rig, policy: str) -> Iterator[Check]:
    case = _case("", rig.record(bench.scale_size(8), REALS), policy)
    if case.wanted is not None:
        yield replace(_compare_with_reference(policy, case), case="scalars")
    yield replace(_check_error(case), case="error")


# Mutations


def _change_link(policy: str, change: Any) -> Replacement:
    """Change the link that a policy gets."""

    def make(real: Any) -> Any:
        return lambda self, state, link: real(self, state, change(link))

    return replace_by(f"otafl.power.{policy}.compute_coefficients", make)


def _amplitude_of_the_gain(link: Any) -> Any:
    return dataclasses.replace(link, gain=link.gain.sqrt())


def _gain_of_all(link: Any) -> Any:
    return dataclasses.replace(link, gain=link.gain.mean(1, keepdim=True).expand_as(link.gain))


def _drop_gain(link: Any) -> Any:
    return dataclasses.replace(link, gain=torch.ones_like(link.gain))


def _mean_of_all(real: Any) -> Any:
    """Average over the population instead of the transmitters."""

    def common(cost: Any, link: Any, reference: str) -> Any:
        if reference == "max":
            return real(cost, link, reference)
        return (cost * link.transmit_mask[:, None]).mean(-1, keepdim=True)

    return common


def _gamma_of_all(real: Any) -> Any:
    return lambda link, gamma: real(
        dataclasses.replace(link, transmit_mask=torch.ones_like(link.transmit_mask)), gamma
    )


def _no_gain(real: Any) -> Any:
    return lambda statistics, relative: torch.ones_like(real(statistics, relative))


def _k_of_the_population(real: Any) -> Any:
    """Average over all devices of the trial instead of the transmitters."""

    def transmit(*args: Any, **options: Any) -> Any:
        state, made = real(*args, **options)
        cohort = made.sent.cohort
        unit = made.unit * cohort.rows_per_trial[:, None] / cohort.num_devices
        return state, dataclasses.replace(made, unit=unit)

    return transmit


def _one_too_many(real: Any) -> Any:
    """Put one device too many at full power, a known public mistake."""

    def threshold(reach: Any, power: Any, noise: Any, there: Any) -> Any:
        order = reach.argsort(-1)
        q, m = reach.gather(-1, order), power.gather(-1, order)
        root = (noise + (m * q**2).cumsum(-1)) / (m * q).cumsum(-1)
        place = (root.argmin(-1, keepdim=True) + 1).clamp_max(root.shape[-1] - 1)
        return root.gather(-1, place)

    return threshold


def _more_error(real: Any) -> Any:
    return lambda self, squared, target: real(self, 1.1 * squared, target)


MUTATIONS = (
    build_mutations(
        "power blind: ",
        {
            "gain's root for the gain (blind)": (
                {"path loss", "scaling by the large-scale gain"},
                _change_link("blind:Blind", _amplitude_of_the_gain),
            ),
            "gain of the population (blind)": (
                "scaling by the large-scale gain",
                _change_link("blind:Blind", _gain_of_all),
            ),
        },
    )
    + build_mutations(
        "power gbma: ",
        {
            "mean device of the population": (
                "budget of the mean device",
                replace_by("otafl.power.scalars:reduce_over_devices", _mean_of_all),
            ),
            "gamma of the population": (
                "power of gamma",
                replace_by("otafl.power.gbma:compute_fixed_power", _gamma_of_all),
            ),
        },
    )
    + build_mutations(
        "power tci: ",
        {
            "threshold without path loss (tci)": (
                "path loss",
                replace_by("otafl.power.tci:compute_reference_gain", _no_gain),
            ),
        },
    )
    + build_mutations(
        "power cotaf: ",
        {
            "threshold without path loss (cotaf)": (
                "path loss",
                replace_by("otafl.power.cotaf:compute_reference_gain", _no_gain),
            ),
        },
    )
    + build_mutations(
        "power open_loop: ",
        {
            "open loop without path loss": (
                "path loss",
                _change_link("open_loop:OpenLoop", _drop_gain),
            ),
        },
    )
    + build_mutations(
        "power ci: ",
        {
            "K of the population": (
                "K counts the transmitters",
                replace_by("otafl.uplink.coherent.over_the_air:transmit", _k_of_the_population),
            ),
            "less than the weakest device has": (
                {
                    "K counts the transmitters",
                    "error given the channel",
                    "path loss",
                    "reach of the weakest device",
                    "scalars as on the formula sheet",
                },
                scale_result("otafl.power.ci:compute_amplitude_bound", 0.7),
            ),
            "twice the power": (
                {
                    "K counts the transmitters",
                    "error given the channel",
                    "path loss",
                    "power within its budget",
                    "reach of the weakest device",
                    "scalars as on the formula sheet",
                },
                scale_result("otafl.power.ci:compute_amplitude_bound", 1.4),
            ),
        },
    )
    + build_mutations(
        "power full: ",
        {
            "another receive scaling": (
                {
                    "K counts the transmitters",
                    "error given the channel",
                    "path loss",
                    "scalars as on the formula sheet",
                },
                scale_result("otafl.power.scalars:compute_mmse_root_eta", 1.5),
            ),
            "a larger reported error": (
                {"NMSE follows from h, p, c, eta"},
                replace_by("otafl.uplink.delivery:Tally.error", _more_error),
            ),
        },
    )
    + build_mutations(
        "power cao_static: ",
        {
            "one device too many at full power": (
                {
                    "K counts the transmitters",
                    "error given the channel",
                    "path loss",
                    "scalars as on the formula sheet",
                },
                replace_by("otafl.power.cao_static:compute_threshold", _one_too_many),
            ),
        },
    )
    + build_mutations(
        "power smcv: ",
        {
            "smaller deviations": (
                {
                    "K counts the transmitters",
                    "error given the channel",
                    "path loss",
                    "scalars as on the formula sheet",
                },
                scale_result("otafl.power.smcv:_solve", 0.9),
            ),
        },
    )
)
