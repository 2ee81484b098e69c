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

from otafl.validation.bench import Bench, Record
from otafl.validation.checks import Check, check_exact, check_mean, check_share, state_law

CONVEX = "Abrar and Michelusi 2024"

SNR_DB, HIGH_SNR_DB = 10.0, 30.0
BUDGETS_DB = (0.0, -8.0, -16.0)
STRENGTH = 10.0 ** (np.array([*BUDGETS_DB, *BUDGETS_DB]) / 10.0 + SNR_DB / 10.0)

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


@state_law("power pre_scaler: zero bias", f"{CONVEX}; alpha^2 = s / (2 e) of the weakest")
def _zero_bias(bench: Bench) -> Iterator[Check]:
    """Compare the receive scaling, the mean of alpha, and each device's alpha."""
    record, law = _record(bench, "zero bias"), math.sqrt(STRENGTH.min() / (2.0 * math.e))
    yield check_exact(law, math.sqrt(float(record.eta.mean())), case="receive scaling")
    alpha = _alpha(_gamma(record))
    yield check_exact(law, float(alpha[np.abs(alpha - law).argmax()]), case="each device")


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
