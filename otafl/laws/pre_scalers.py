"""Laws of pre-scalers planned on channel statistics, over Rayleigh fading.

The formulas are written independently of the policy. A plan is read from the transmissions, gamma_k
= |h_k p_k| of symbols of power one, for devices with unequal budgets. Its strengths are s_k =
Lambda_k P_k.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import optimize

from otafl.laws.bench import Bench, Record
from otafl.laws.checks import Check, check_exact, check_mean, check_share, state_law

CONVEX = "Abrar and Michelusi 2024"
NON_CONVEX = "Abrar and Michelusi 2025"

SNR_DB, HIGH_SNR_DB = 10.0, 30.0
BUDGETS_DB = (0.0, -8.0, -16.0)
STRENGTH = 10.0 ** (np.array([*BUDGETS_DB, *BUDGETS_DB]) / 10.0 + SNR_DB / 10.0)
HIGH_STRENGTH = STRENGTH * 10.0 ** ((HIGH_SNR_DB - SNR_DB) / 10.0)
N = 0.5
STARTS = 4

PLANS: dict[str, dict[str, Any]] = {
    "weight 1": {},
    "weight 0.1": {"weight": 0.1},
    "weight 0": {"weight": 0.0},
    "zero bias": {"zero_bias": True},
    "best common gain": {"zero_bias": True, "common_gain": "best"},
}
EACH_PLAN = ("{}", tuple(PLANS))


@functools.lru_cache(maxsize=8)
def _record(bench: Bench, plan: str, snr_db: float = SNR_DB) -> Record:
    channel = {"name": "rayleigh", "snr_db": snr_db, "device_budget_db": BUDGETS_DB}
    point = {"channel": channel, "power": {"name": "pre_scaler"} | PLANS[plan]}
    return bench.build_rig(len(STRENGTH), 32, point).record(bench.scale_size(64), 16, 1.0)


def _gamma(record: Record) -> np.ndarray:
    """Return gamma_k [K] of the active devices."""
    found: np.ndarray = np.abs(record.h * record.p).max((0, 1))
    return found


def _alpha(gamma: np.ndarray, strength: np.ndarray = STRENGTH) -> np.ndarray:
    """Compute the mean gains [K]."""
    alpha: np.ndarray = gamma * np.exp(-(gamma**2) / strength)
    return alpha


def _cost(gamma: np.ndarray, weight: float) -> float:
    """Compute the weighted sum of bias and variance in the paper's bound."""
    alpha, devices = _alpha(gamma), len(gamma)
    p = alpha / alpha.sum()
    bias = devices * ((p - 1.0 / devices) ** 2).sum()
    silence = (p * gamma / alpha.sum() - p**2).sum()
    return float(weight * bias + silence + N / alpha.sum() ** 2)


@state_law("power pre_scaler: least bias and variance", NON_CONVEX, "weight {:g}", (1.0, 0.1))
def _check_least_error(bench: Bench, weight: float) -> Iterator[Check]:
    """Compare the cost of the plan with the least cost of a search without derivatives."""
    most = np.sqrt(STRENGTH / 2.0)
    random = np.random.default_rng(0)
    found = [
        optimize.minimize(
            lambda part: _cost(part * most, weight),
            random.uniform(0.1, 1.0, len(most)),
            method="SLSQP",
            bounds=[(1e-4, 1.0)] * len(most),
            options={"ftol": 1e-13, "maxiter": 500},
        ).fun
        for _ in range(STARTS)
    ]
    yield check_exact(min(found), _cost(_gamma(_record(bench, f"weight {weight:g}")), weight))


@state_law("power pre_scaler: zero bias", f"{CONVEX}; alpha^2 = s / (2 e) of the weakest")
def _zero_bias(bench: Bench) -> Iterator[Check]:
    """Compare the receive scaling, the mean of alpha, and each device's alpha."""
    record, law = _record(bench, "zero bias"), math.sqrt(STRENGTH.min() / (2.0 * math.e))
    yield check_exact(law, math.sqrt(float(record.eta.mean())), case="receive scaling")
    alpha = _alpha(_gamma(record))
    yield check_exact(law, float(alpha[np.abs(alpha - law).argmax()]), case="each device")


def _alike_error(alpha: float, strength: np.ndarray) -> float:
    """Compute the error by silence and noise of devices with one mean gain.

    Of the two solutions, the one with less power is found by bisection.
    """
    low, high = np.zeros_like(strength), np.sqrt(strength / 2.0)
    for _ in range(100):
        middle = (low + high) / 2.0
        under = _alpha(middle, strength) < alpha
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    silence = np.exp(low**2 / strength).mean() - 1.0
    return float(silence / len(strength) + N / (len(strength) * alpha) ** 2)


@state_law("power pre_scaler: best common gain", "least silence and noise without bias")
def _best_common_gain(bench: Bench) -> Iterator[Check]:
    """Compare the gain and its error with those of a search along the common gain.

    The SNR of the nearest device is 30 dB. Each device's gain is compared as well.
    """
    record = _record(bench, "best common gain", HIGH_SNR_DB)
    alpha = _alpha(_gamma(record), HIGH_STRENGTH)
    most = math.sqrt(HIGH_STRENGTH.min() / (2.0 * math.e))
    found = optimize.minimize_scalar(
        lambda log: _alike_error(math.exp(log), HIGH_STRENGTH),
        bounds=(math.log(most) - 10.0, math.log(most)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    law = math.exp(found.x)
    yield check_exact(law, float(alpha[np.abs(alpha - law).argmax()]), 1e-5, "gain")
    yield check_exact(law, math.sqrt(float(record.eta.mean())), 1e-5, "receive scaling")
    yield check_exact(
        float(found.fun), _alike_error(float(alpha.mean()), HIGH_STRENGTH), case="error"
    )


@state_law(
    "power pre_scaler: error without bias", "(mean exp(gamma^2 / s) - 1) / K + N / (K alpha)^2"
)
def _error_without_bias(bench: Bench) -> Iterator[Check]:
    """Compare the squared error of symbols of power one, at the largest and the best common gain.

    The SNR of the nearest device is 30 dB.
    """
    for plan in ("zero bias", "best common gain"):
        record = _record(bench, plan, HIGH_SNR_DB)
        alpha = math.sqrt(float(record.eta.mean()))
        yield check_mean(_alike_error(alpha * (1.0 - 1e-12), HIGH_STRENGTH), record.error, plan)


@state_law("power pre_scaler: mean gain", f"{CONVEX}; E c_k = K alpha_k / sum alpha", *EACH_PLAN)
def _mean_gain(bench: Bench, plan: str) -> Iterator[Check]:
    """Compare the mean gain of each kind of device, silence included."""
    record = _record(bench, plan)
    alpha = _alpha(_gamma(record))
    for kind, budget_db in enumerate(BUDGETS_DB):
        law = len(alpha) * alpha[kind] / alpha.sum()
        yield check_mean(law, record.c[..., kind :: len(BUDGETS_DB)], f"{budget_db:g} dB")


@state_law("power pre_scaler: silent fraction", f"{CONVEX}; 1 - exp(-gamma^2 / s)", *EACH_PLAN)
def _silent(bench: Bench, plan: str) -> Iterator[Check]:
    record = _record(bench, plan)
    chance = 1.0 - np.exp(-(_gamma(record) ** 2) / STRENGTH)
    for kind, budget_db in enumerate(BUDGETS_DB):
        silent = record.p[..., kind :: len(BUDGETS_DB)] == 0
        yield check_share(float(chance[kind]), int(silent.sum()), silent.size, f"{budget_db:g} dB")


POLICY = "otafl.power.pre_scaler:PreScaler.compute_coefficients"
