"""Check the laws of the power policies.

Those of every registered one hold at three signal-to-noise ratios and three device counts under
Rayleigh fading with unequal symbol powers and budgets; those of single ones are what they promise
over fading.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from otafl.conformance import sheet
from otafl.conformance.bench import Bench, Record
from otafl.conformance.checks import (
    Check,
    Law,
    at_most,
    exactly,
    mean,
    mean_at_most,
    normal,
    normal_errors,
    ratios,
    share,
    stated,
)
from otafl.core import registry
from otafl.core.units import db_to_linear
from otafl.power.base import PowerPolicy

SNRS_DB = (0.0, 10.0, 20.0)
COUNTS = (3, 10, 30)
BUDGETS_DB = (0.0, -3.0, 2.0)
REALS = 64
TRIALS = 32
SMCV_VARIATION = 2.0
"""Given, so that the scalars do not depend on the symbols beyond their powers."""

SHEET = "(1/K^2) [sum m (c - 1)^2 + N / eta]"


AMIRI = "Amiri, Duman, Gunduz 2021"
CAO = "Cao, Zhu, Xu, Huang 2020"
SERY = "Sery and Cohen 2020"

GBMA_MEAN = {"amplitude": 1.0, "energy": math.sqrt(math.pi) / 2.0}
"""The mean gain by `gain_target`."""

EACH_THRESHOLD = ("g_th={:g}", (0.1, 0.5))
"""Case and values of the laws over the threshold of truncated inversion."""


def each() -> Iterator[Law]:
    """List the laws that every registered policy keeps."""
    for name in registry.names("power"):
        cited = registry.about("power", name).citation
        laws = [
            ("error given the channel", SHEET, _error),
            ("power within its budget", cited or "budget on |p|^2 m", _power),
            ("NMSE follows from h, p, c, eta", "a^H Gram a + N / eta", _nmse),
        ]
        if name in sheet.RULES:
            laws.insert(0, ("scalars as on the formula sheet", cited or SHEET, _scalars))
        for what, source, run in laws:
            yield Law(f"power {name}: {what}", source, functools.partial(run, policy=name))


def settings(policy: str) -> dict[str, Any]:
    """Return the section of a policy, at its defaults but for what a law needs fixed."""
    given: dict[str, dict[str, Any]] = {
        "smcv": {"variation": SMCV_VARIATION},
        "cao_average": {"draws": 64},  # a plan for each trial; few states are quickly planned on
    }
    return {"name": policy} | given.get(policy, {})


def _made(policy: str) -> PowerPolicy:
    kind: type[PowerPolicy] = registry.component("power", policy)
    return kind(**settings(policy))


def _antennas(policy: str) -> int:
    """Return the server's antennas, more than one for a policy that is made for them."""
    return 4 if "channel.antennas" in registry.settings("power", policy).example else 1


def _point(policy: str, snr_db: float) -> dict[str, Any]:
    channel = {"name": "rayleigh", "snr_db": snr_db, "device_budget_db": BUDGETS_DB}
    point: dict[str, Any] = {"channel": channel, "power": settings(policy)}
    if _antennas(policy) > 1:
        channel["antennas"] = _antennas(policy)
        if registry.component("power", policy).receiver == "uniform_forcing":
            # laws hold for any f, so a rough search will do
            point["receiver"] = {"name": "uniform_forcing", "iterations": 5}
    return point


@functools.lru_cache(maxsize=64)
def _record(bench: Bench, policy: str, devices: int) -> Record:
    """Measure all signal-to-noise ratios in one stack, point by point."""
    points = [_point(policy, snr_db) for snr_db in SNRS_DB]
    rig = bench.uplink(devices, TRIALS, points)
    # combiners take time for each round, hardly more for more trials
    return rig.record(bench.size(4 if _antennas(policy) > 1 else 16), REALS)


@dataclass(frozen=True)
class _Case:
    """Hold what was measured for a device count at a signal-to-noise ratio.

    states are over rounds and trials, chosen is what the policy chose in them, and wanted what the
    sheet would choose, where it has the policy.
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
            record = _record(bench, policy, devices).point(index, len(SNRS_DB))
            at = record.flat
            states = sheet.States(
                at.h,
                at.m,
                at.budget,
                np.ones(at.m.shape),
                at.noise,
                _antennas(policy),
                _made(policy),
            )
            rule = sheet.RULES.get(policy)
            wanted = rule(states) if rule else None
            chosen = sheet.Scalars(at.c, at.eta, at.active)
            cases.append(_Case(f"K={devices}, {snr_db:g} dB", record, states, chosen, wanted))
    return tuple(cases)


def _scalars(bench: Bench, policy: str) -> Iterator[Check]:
    """Compare who is on air, and the objective at the saved c and eta with that at the sheet's,
    where they differ most. For a rule that is an optimum this is its minimum."""
    for case in _cases(bench, policy):
        assert case.wanted is not None
        if (case.wanted.active != case.chosen.active).any():
            yield exactly(1.0, math.nan, case=f"{case.name}, who is on air")
            continue
        on = case.wanted.active.any(1)
        found, law = (
            _objective(policy, one, case.states)[on] for one in (case.chosen, case.wanted)
        )
        yield ratios(found, law, 1e-5, case.name)


def _objective(policy: str, scalars: sheet.Scalars, states: sheet.States) -> np.ndarray:
    if policy == "smcv":
        d = np.sqrt(states.m) * (scalars.c - 1.0)
        return sheet.smcv_objective(d, states.noise / scalars.eta, SMCV_VARIATION)
    return sheet.error(scalars, states.m, states.noise)


def _error(bench: Bench, policy: str) -> Iterator[Check]:
    """Compare the squared error of every real with its closed form, chi-square, which for a policy
    that the sheet does not have is that of the c and eta that it chose."""
    for case in _cases(bench, policy):
        law = sheet.error(case.wanted or case.chosen, case.states.m, case.states.noise)
        yield normal_errors(law, case.record, case.name)


def _power(bench: Bench, policy: str) -> Iterator[Check]:
    """Bound the largest share of the budget used in any round; for an average budget the mean over
    rounds and devices, trial by trial."""
    keeps = _made(policy).keeps
    for case in _cases(bench, policy):
        record = case.record
        used = record.power / record.budget
        if keeps == "peak":
            yield at_most(1.0, float(used.max()), case=case.name)
        elif keeps == "average":
            yield mean_at_most(1.0, used.mean((0, 2)), case.name)
        else:  # no budget is kept, and the report says what was used
            spent = np.abs(record.p) ** 2 * record.m / record.budget
            yield ratios(used, spent, case=case.name)


def _nmse(bench: Bench, policy: str) -> Iterator[Check]:
    """Compute the NMSE with imperfect estimates, residual phases and unequal weights."""
    devices = 6
    weights = [1.0 + k for k in range(devices)]
    point = _point(policy, 10.0) | {
        "csi": {"name": "error", "variance": 0.1},
        "impairments": {"residual_phase_rad": 0.4},
    }
    rig = bench.uplink(devices, TRIALS, point, weights=weights)
    record = rig.record(bench.size(16), REALS)
    on_air = (record.weight * record.active).sum(-1)
    on = on_air > 0
    unit = 1.0 / (devices * np.where(on, on_air, 1.0))
    noise = record.noise / record.eta * unit**2
    law = (record.distortion + REALS * noise * on) / record.exact
    spread = np.sqrt(4 * record.distortion * noise + 2 * REALS * noise**2) * on / record.exact
    deviation = float(np.sqrt((spread**2).sum())) / law.size
    yield normal(float(law.mean()), float(record.nmse.mean()), deviation)


@functools.lru_cache(maxsize=16)
def _rayleigh(bench: Bench, devices: int, policy: str, **keys: Any) -> Record:
    """Measure a policy with keys of its section changed, and equal symbol powers of one."""
    point = {"channel": {"name": "rayleigh", "snr_db": 10.0}, "power": {"name": policy} | keys}
    return bench.uplink(devices, 32, point).record(bench.size(64), 16, 1.0)


@stated("power ci: exact mean without noise", "c = 1, error N / (K^2 eta)", "K={}", COUNTS)
def _ci_exact(bench: Bench, devices: int) -> Iterator[Check]:
    """Send without noise (at 200 dB)."""
    point = {"channel": {"name": "rayleigh", "snr_db": 200.0}, "power": "ci"}
    record = bench.uplink(devices, 8, point).record(4, REALS)
    yield exactly(0.0, float(record.nmse.max()), 1e-12)


@stated("power gbma: mean gain over fading", f"{SERY}; E|h| = sqrt(pi)/2", "{}", GBMA_MEAN)
def _gbma_mean(bench: Bench, target: str) -> Iterator[Check]:
    yield mean(GBMA_MEAN[target], _rayleigh(bench, 10, "gbma", gain_target=target).c)


@stated("power gbma: variance of the gain", f"{SERY}; 1 - pi/4", "{}", GBMA_MEAN)
def _gbma_variance(bench: Bench, target: str) -> Iterator[Check]:
    law = {"amplitude": 4.0 / math.pi - 1.0, "energy": 1.0 - math.pi / 4.0}[target]
    record = _rayleigh(bench, 10, "gbma", gain_target=target)
    yield mean(law, (record.c - GBMA_MEAN[target]) ** 2)


@stated("power gbma: error over fading", f"{SERY}; FedRLR eq. 29", "K={}", COUNTS)
def _gbma_error(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare the error about the mean with (1/(K mu^2)) [1 - pi/4 + N / (K E)], of symbols of unit
    power, over fading."""
    law = (1.0 - math.pi / 4.0 + 0.5 / (devices * 10.0)) / devices / (math.pi / 4.0)
    yield mean(law, _rayleigh(bench, devices, "gbma").error)


@stated("power tci: silent fraction", "1 - exp(-g_th / beta)", *EACH_THRESHOLD)
def _tci_silent(bench: Bench, threshold: float) -> Iterator[Check]:
    active = _rayleigh(bench, 10, "tci", threshold=threshold).active
    yield share(1.0 - math.exp(-threshold), int((~active).sum()), active.size)


@stated("power tci: long-term power", "E|p|^2 m = P by E1(g_th / beta)", *EACH_THRESHOLD)
def _tci_power(bench: Bench, threshold: float) -> Iterator[Check]:
    record = _rayleigh(bench, 10, "tci", threshold=threshold)
    yield mean(1.0, record.power / record.budget)


@stated("power tci: scale", "rho = P beta / E1(g_th / beta)", *EACH_THRESHOLD)
def _tci_scale(bench: Bench, threshold: float) -> Iterator[Check]:
    record = _rayleigh(bench, 10, "tci", threshold=threshold)
    yield exactly(10.0 / special.exp1(threshold), float(record.eta[0, 0]))


@stated("power cotaf: noise falls with updates", "Sery et al. 2021, eq. 8-10")
def _cotaf_noise(bench: Bench) -> Iterator[Check]:
    """Compare the noise with N / (K_a^2 alpha h_min^2), alpha = P / m: it is a quarter for updates
    of half the size."""
    rig = bench.uplink(10, 16, {"channel": {"name": "rayleigh", "snr_db": 10.0}, "power": "cotaf"})
    for size in (1.0, 0.5, 0.1):
        record = rig.record(bench.size(32), REALS, size**2)
        law = 0.5 / (record.active.sum(-1) ** 2 * 10.0 / size**2 * 0.1**2)
        yield normal_errors(law, record, f"updates x {size:g}")


@stated("power blind: error falls as 1/A", f"{AMIRI}, eq. 12", "A={}", (1, 4, 16, 64))
def _blind(bench: Bench, antennas: int) -> Iterator[Check]:
    """Compare the error with [(K + 1)/2 + 1/(2 P)] / (K A), unit symbols, P over sigma^2; it falls
    as 1/A."""
    devices = 8
    channel = {"name": "rayleigh", "snr_db": 3.0, "antennas": antennas}
    rig = bench.uplink(devices, 32, {"channel": channel, "power": "blind"})
    law = ((devices + 1) / 2.0 + 0.5 / db_to_linear(3.0)) / (devices * antennas)
    yield mean(law, rig.record(bench.size(32), 16, 1.0).error)


PLANNED = 512
MOST_POWER = PLANNED / 16.0
"""Over the budget: that of a state that came up 16 times among those planned on."""


@functools.lru_cache(maxsize=2)
def _average(bench: Bench) -> Record:
    channel = {"name": "rayleigh", "snr_db": 5.0, "device_budget_db": (0.0, -6.0)}
    power = {"name": "cao_average", "draws": PLANNED}
    rig = bench.uplink(6, 24, {"channel": channel, "power": power})
    return rig.record(bench.size(64), 16, 1.0)


def _multiplier(record: Record) -> np.ndarray:
    """Return lambda_k [R, S, K] of sqrt(eta) |h| / (g + eta lambda) = |p|; nan where silent."""
    size, eta = np.abs(record.h), record.eta[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (np.sqrt(eta) * size / np.abs(record.p) - size**2) / eta
    return np.where(record.active, found, np.nan)


def _held(record: Record) -> np.ndarray:
    """Return the states so rare that the plan holds a device to its largest power, where the closed
    form is left, [R, S] bool."""
    held: np.ndarray = (record.power / record.budget > 0.999 * MOST_POWER).any(-1)
    return held


@stated("power cao_average: regularised inversion", f"{CAO}, |p| = sqrt(eta)|h| / (g + eta lambda)")
def _average_form(bench: Bench) -> Iterator[Check]:
    """Find one multiplier a device that explains its transmit scalars in all states."""
    record = _average(bench)
    found = np.where(_held(record)[..., None], np.nan, _multiplier(record))
    spread = (np.nanmax(found, 0) - np.nanmin(found, 0)) / np.nanmax(found, 0)
    yield exactly(0.0, float(spread.max()), 1e-5)


@stated("power cao_average: receive scaling", f"{CAO}, sum lambda g eta^2/(g+eta lambda)^2 = N")
def _average_root(bench: Bench) -> Iterator[Check]:
    record = _average(bench)
    gain, eta = np.abs(record.h) ** 2, record.eta[..., None]
    multiplier = _multiplier(record)
    total = (multiplier * gain * eta**2 / (gain + eta * multiplier) ** 2).sum(-1)
    total = total[record.active.all(-1) & ~_held(record)]
    yield exactly(0.5, float(total[np.abs(total - 0.5).argmax()]), 1e-5)


@stated("power cao_average: average power", f"{CAO}, budget met with equality")
def _average_budget(bench: Bench) -> Iterator[Check]:
    """Compare the mean power of each kind of device with its budget; the states planned on are a
    sample too, and trials have plans of their own."""
    record = _average(bench)
    used = (record.power / record.budget).mean(0)
    for kind, name in enumerate(("full budget", "a quarter of it")):
        yield mean(1.0, used[:, kind::2].mean(1), name, bias=2.0 / PLANNED)
