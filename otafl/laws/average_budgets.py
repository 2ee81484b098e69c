"""Laws of power policies with average budgets: `cao_average` by planning, `lyapunov` by queues.

Errors are those of the mean over all devices, of unit symbols: a round in which no device transmits
has the error of a zero.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import integrate, optimize

from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench, Record
from otafl.laws.checks import (
    Check,
    check_at_least,
    check_at_most,
    check_exact,
    check_mean,
    check_mean_at_most,
    check_mean_below,
    state_law,
)
from otafl.laws.single_policies import CAO

NEELY = "Neely 2010"

N = 0.5
COORDINATES = 4

ROUNDS = 200
"""Rounds in which the queues converge, also in a quick run."""

SNRS_DB = (-5.0, 10.0, 20.0)
PLANNED = 2048
MOST_POWER = PLANNED / 16.0
"""Largest power over the budget: that of a state that is 16 times among the planned ones."""

WEIGHTS = (0.3, 3.0, 30.0)
"""V, the weight of the squared error."""

SHARE = 0.25
"""Average energy budget of `lyapunov`, over the energy of full power."""


def _make_point(policy: Any, snr_db: float, channel: str = "rayleigh") -> dict[str, Any]:
    return {"channel": {"name": channel, "snr_db": snr_db}, "power": policy}


def _compute_error(record: Record) -> np.ndarray:
    """Compute the error of the mean over all devices, over that of a zero, [R, S]."""
    num_devices, num_active = record.m.shape[-1], record.active.sum(-1)
    ratio = num_devices / np.maximum(num_active, 1)
    c = (record.h * record.p).real / np.sqrt(record.eta)[..., None]
    off = (record.m * (c * record.active * ratio[..., None] - 1.0) ** 2).sum(-1)
    error = (off + N / record.eta * ratio**2) / record.m.sum(-1)
    return np.where(num_active > 0, error, 1.0)


@functools.lru_cache(maxsize=4)
def _record_planned(bench: Bench, devices: int, policy: str = "cao_average") -> list[Record]:
    """Record a policy at each SNR."""
    trials = 12 if devices == 1 else 6
    rig = bench.build_rig(devices, trials, [_make_point(policy, snr) for snr in SNRS_DB])
    record = rig.record(bench.scale_size(128), COORDINATES, 1.0)
    return [record.select_point(index, len(SNRS_DB)) for index in range(len(SNRS_DB))]


@state_law("power cao_average: average power by SNR", CAO, "K={}", (1, 5, 20))
def _average_power(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare the power over fading with the budget; plans of 2,048 states are 2 % off at most."""
    largest = []
    for snr_db, record in zip(SNRS_DB, _record_planned(bench, devices), strict=True):
        used = record.power / record.budget
        largest.append(float(used.max()))
        yield check_mean(1.0, used.mean((0, 2)), f"{snr_db:g} dB", bias=0.02)
    yield check_at_most(MOST_POWER, max(largest), case="largest")
    yield check_at_least(1.2, min(largest), "above the budget")


@state_law("power cao_average: budget over all rounds", f"{CAO}; 5 of 20 devices transmit")
def _check_selection(bench: Bench) -> Iterator[Check]:
    """Bound the power over all rounds, and from below that of a round, which exceeds the budget."""
    rig = bench.build_rig(20, 16, _make_point("cao_average", 10.0), senders=(0, 4, 8, 12, 16))
    record = rig.record(bench.scale_size(64), COORDINATES, 1.0)
    used = (record.power / record.budget).mean((0, 2))
    yield check_mean_at_most(0.8, used * 5 / 20, "over all rounds")
    yield check_mean_at_most(-1.2, -used, "less, of a round")


@state_law("power cao_average: multiplier of one device", f"{CAO}, E[sqrt(N/(l q)) - N/q]^+ = 1")
def _multiplier_of_one(bench: Bench) -> Iterator[Check]:
    """Compare lambda P with the root of the average power over Rayleigh fading, by quadrature."""
    for snr_db, record in zip(SNRS_DB, _record_planned(bench, 1), strict=True):
        amplitude, eta = np.abs(record.h), record.eta[..., None]
        kept = record.active & (record.power / record.budget < 0.999 * MOST_POWER)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (np.sqrt(eta) * amplitude / np.abs(record.p) - amplitude**2) / eta
        found = np.nanmedian(np.where(kept, found, np.nan), 0) * record.budget[0]
        law = _solve_multiplier(float(db_to_linear(snr_db)))
        yield check_mean(1.0, found / law, f"{snr_db:g} dB", bias=0.02)


def _solve_multiplier(budget: float) -> float:
    """Solve for lambda P of one device under Rayleigh fading."""

    def excess(log_level: float) -> float:
        level = math.exp(log_level)
        value, _ = integrate.quad(  # over the logarithm of the gain
            lambda t: (
                (math.sqrt(N * math.exp(t) / (level * budget)) - N / budget)
                * math.exp(-math.exp(t))
            ),
            math.log(level * N / budget),
            4,
        )
        return float(value) - 1.0

    return math.exp(float(optimize.brentq(excess, math.log(1e-8), math.log(100.0))))


@state_law("power cao_average: less error than a peak budget", CAO, "K={}", (5, 20))
def _less_error(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare errors with those of `cao_static` over the same fading, whose peak is the budget."""
    both = zip(
        SNRS_DB,
        _record_planned(bench, devices),
        _record_planned(bench, devices, "cao_static"),
        strict=True,
    )
    for snr_db, average, peak in both:
        yield check_mean_below(_compute_error(peak), _compute_error(average), f"{snr_db:g} dB")


@state_law("power cao_average: average power with a line of sight", CAO)
def _line_of_sight(bench: Bench) -> Iterator[Check]:
    """Compare each device's power with its budget; without deep fades it is 3 % off at most."""
    channel = {"name": "rician", "k_factor_db": 12.0, "snr_db": 10.0}
    rig = bench.build_rig(5, 16, {"channel": channel, "power": "cao_average"})
    record = rig.record(bench.scale_size(128), COORDINATES, 1.0)
    used = (record.power / record.budget).mean((0, 1))
    yield check_exact(1.0, float(used[np.abs(used - 1.0).argmax()]), 0.03)


@functools.lru_cache(maxsize=2)
def _record_queues(bench: Bench, powers: float | None = 1.0) -> list[Record]:
    """Record `lyapunov` with each V; with `powers` None, the devices' symbol powers differ."""
    trials, average_db = 32 if powers else 8, 10.0 * math.log10(SHARE)
    points = [
        _make_point({"name": "lyapunov", "v": v, "average_db": average_db}, 10.0) for v in WEIGHTS
    ]
    record = bench.build_rig(10, trials, points).record(ROUNDS, COORDINATES, powers)
    return [record.select_point(index, len(WEIGHTS)) for index in range(len(WEIGHTS))]


@state_law("power lyapunov: drift bound", f"{NEELY}; sum e / T <= e_bar + (r V/(4 e_bar) + 1)/T")
def _drift_bound(bench: Bench) -> Iterator[Check]:
    """Bound the average energy of every device up to every round, which holds with certainty."""
    for powers, name in ((1.0, "equal"), (None, "unequal")):
        largest, peaks = [], []
        for v, record in zip(WEIGHTS, _record_queues(bench, powers), strict=True):
            energy = record.power / record.budget
            r = record.m.max(-1, keepdims=True) / record.m.mean(-1, keepdims=True)
            t = np.arange(1, len(energy) + 1)[:, None, None]
            bound = SHARE + (r * v / (4.0 * SHARE) + 1.0) / t
            largest.append(float((energy.cumsum(0) / t / bound).max()))
            peaks.append(float(energy.max()))
        yield check_at_most(1.0, max(largest), case=f"{name} symbols")
        yield check_at_most(1.0, max(peaks), case=f"{name} symbols, peak")


@state_law("power lyapunov: error falls as V grows", NEELY)
def _less_by_weight(bench: Bench) -> Iterator[Check]:
    """Compare errors, and energies, which rise to their bound, of each V and the next."""
    records = zip(WEIGHTS, _record_queues(bench), strict=True)
    for (v, less), (_, more) in itertools.pairwise(records):
        errors = [_compute_error(one).mean(0) for one in (less, more)]
        yield check_mean_below(errors[0], errors[1], f"error above V={v:g}")
        energies = [(one.power / one.budget).mean((0, 2)) for one in (less, more)]
        yield check_mean_below(energies[1], energies[0], f"energy up to V={v:g}")


@state_law("power lyapunov: error near the optimum", f"{NEELY}; {CAO}")
def _near_optimum(bench: Bench) -> Iterator[Check]:
    """Compare converged queues with `cao_average`, which knows the statistics: within 4 %."""
    optimum = bench.build_rig(
        10, 32, _make_point("cao_average", 10.0 + 10.0 * math.log10(SHARE))
    ).record(ROUNDS, COORDINATES, 1.0)
    settled = slice(ROUNDS // 2, None)
    record = _record_queues(bench)[-1]
    least = float(_compute_error(optimum)[settled].mean())
    yield check_exact(least, float(_compute_error(record)[settled].mean()), 0.04, "error")
    energy = (record.power / record.budget)[settled]
    yield check_exact(SHARE, float(energy.mean()), 0.04, "energy")
