"""Laws of single power policies over fading, and of devices that are silent in deep fades.

The formulas of pre-scalers are written independently of the policy. A plan is read from the
transmissions, gamma_k = |h_k p_k| of symbols of power one, for devices with unequal budgets. Its
strengths are s_k = Lambda_k P_k.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl.core.contracts import LinkReport
from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, BenchRecord
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_ratios,
    check_share,
    state_law,
)
from otafl.validation.packets import ACCESS, DEVICES, REALS, SNR, TRIALS, build_digital_rig

COUNTS = (3, 10, 30)

AMIRI = "Amiri, Duman, Gunduz 2021"
CAO = "Cao, Zhu, Xu, Huang 2020"
SERY = "Sery and Cohen 2020"

ERROR = 0.25
"""Variance of the error of estimates."""

GBMA_MEAN = {"amplitude": 1.0, "energy": math.sqrt(math.pi) / 2.0}
"""Mean gain by `gain_target`."""

EACH_THRESHOLD = ("g_th={:g}", (0.1, 0.5))
"""Case and values of the laws over the threshold of truncated inversion."""


@functools.lru_cache(maxsize=16)
def _rayleigh(bench: Bench, devices: int, policy: str, **keys: Any) -> BenchRecord:
    """Record a policy with some keys of its section, and equal symbol powers of one."""
    point = {"channel": {"name": "rayleigh", "snr_db": 10.0}, "power": {"name": policy} | keys}
    return bench.build_rig(devices, 32, point).record(bench.scale_size(64), 16, 1.0)


@state_law("power gbma: mean gain over fading", f"{SERY}; E|h| = sqrt(pi)/2", "{}", GBMA_MEAN)
def _gbma_mean(bench: Bench, target: str) -> Iterator[Check]:
    yield check_mean(GBMA_MEAN[target], _rayleigh(bench, 10, "gbma", gain_target=target).c)


@state_law("power gbma: error over fading", f"{SERY}; FedRLR eq. 29", "K={}", COUNTS)
def _gbma_error(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare the error about the mean with (1/(K mu^2)) [1 - pi/4 + N / (K E)], over fading.

    The symbols have unit power.
    """
    law = (1.0 - math.pi / 4.0 + 0.5 / (devices * 10.0)) / devices / (math.pi / 4.0)
    yield check_mean(law, _rayleigh(bench, devices, "gbma").error)


@state_law("power tci: silent fraction", "1 - exp(-g_th / beta)", *EACH_THRESHOLD)
def _tci_silent(bench: Bench, threshold: float) -> Iterator[Check]:
    active = _rayleigh(bench, 10, "tci", threshold=threshold).active
    yield check_share(1.0 - math.exp(-threshold), int((~active).sum()), active.size)


@state_law("power tci: long-term power", "E|p|^2 m = P by E1(g_th / beta)", *EACH_THRESHOLD)
def _tci_power(bench: Bench, threshold: float) -> Iterator[Check]:
    record = _rayleigh(bench, 10, "tci", threshold=threshold)
    yield check_mean(1.0, record.power / record.budget)


@state_law("power tci: scale", "rho = P beta / E1(g_th / beta)", *EACH_THRESHOLD)
def _tci_scale(bench: Bench, threshold: float) -> Iterator[Check]:
    record = _rayleigh(bench, 10, "tci", threshold=threshold)
    yield check_exact(10.0 / special.exp1(threshold), float(record.eta[0, 0]))


@state_law("power cotaf: silent fraction", "1 - exp(-h_min^2 / (1 + v))", "v={:g}", (0.0, ERROR))
def _cotaf_silent(bench: Bench, variance: float) -> Iterator[Check]:
    """Count the devices whose estimated amplitude is below the threshold."""
    least = 0.5
    point = {
        "channel": {"name": "rayleigh", "snr_db": 10.0},
        "csi": {"name": "error", "variance": variance} if variance else "perfect",
        "power": {"name": "cotaf", "h_min": least},
    }
    active = bench.build_rig(10, 64, point).record(bench.scale_size(64), 1, 1.0).active
    law = 1.0 - math.exp(-(least**2) / (1.0 + variance))
    yield check_share(law, int((~active).sum()), active.size)


@state_law("power blind: error falls as 1/A", f"{AMIRI}, eq. 12", "A={}", (1, 4, 16, 64))
def _blind(bench: Bench, antennas: int) -> Iterator[Check]:
    """Compare the error with [(K + 1)/2 + 1/(2 P)] / (K A), unit symbols, P over sigma^2."""
    devices = 8
    channel = {"name": "rayleigh", "snr_db": 3.0, "antennas": antennas}
    rig = bench.build_rig(devices, 32, {"channel": channel, "power": "blind"})
    law = ((devices + 1) / 2.0 + 0.5 / db_to_linear(3.0)) / (devices * antennas)
    yield check_mean(law, rig.record(bench.scale_size(32), 16, 1.0).error)


@state_law("power gbma: power of gamma", "FedRLR; |p|^2 = gamma, K gamma of a factor of a product")
def _gamma(bench: Bench) -> Iterator[Check]:
    """Check the power of four of eight devices against gamma, whatever the budget."""
    point = {"power": {"name": "gbma", "gamma": 0.3}}
    rig = bench.build_rig(8, 4, point, senders=(0, 2, 3, 6))
    for weighting, law in (("mean", 0.3), ("none", 4 * 0.3)):
        report = rig.send(rig.draw_symbols(16, 0, 1.0), 0, weighting)[1]
        used = report.power[:, rig.senders].cpu().numpy()
        yield check_ratios(used, np.full(used.shape, law), case=weighting)


PLANNED = 512


@functools.lru_cache(maxsize=2)
def _average(bench: Bench) -> BenchRecord:
    channel = {"name": "rayleigh", "snr_db": 5.0, "device_budget_db": (0.0, -6.0)}
    power = {"name": "cao_average", "draws": PLANNED}
    rig = bench.build_rig(6, 24, {"channel": channel, "power": power})
    return rig.record(bench.scale_size(64), 16, 1.0)


@state_law("power cao_average: average power", f"{CAO}, budget met with equality")
def _average_budget(bench: Bench) -> Iterator[Check]:
    """Compare the mean power of each kind of device with its budget.

    The planned states are a sample too, and each trial has its own plan.
    """
    record = _average(bench)
    used = (record.power / record.budget).mean(0)
    for kind, name in enumerate(("full budget", "a quarter of it")):
        yield check_mean(1.0, used[:, kind::2].mean(1), name, bias=2.0 / PLANNED)


CONVEX = "Abrar and Michelusi 2024"

SNR_DB = 10.0
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
def _record(bench: Bench, plan: str) -> BenchRecord:
    channel = {"name": "rayleigh", "snr_db": SNR_DB, "device_budget_db": BUDGETS_DB}
    point = {"channel": channel, "power": {"name": "pre_scaler"} | PLANS[plan]}
    return bench.build_rig(len(STRENGTH), 32, point).record(bench.scale_size(64), 16, 1.0)


def _pre_scaler_gamma(record: BenchRecord) -> np.ndarray:
    """Return gamma_k [K] of the active devices."""
    found: np.ndarray = np.abs(record.h * record.p).max((0, 1))
    return found


def _alpha(gamma: np.ndarray) -> np.ndarray:
    """Compute the mean gains [K]."""
    alpha: np.ndarray = gamma * np.exp(-(gamma**2) / STRENGTH)
    return alpha


@state_law("power pre_scaler: zero bias", f"{CONVEX}; alpha^2 = s / (2 e) of the weakest")
def _zero_bias(bench: Bench) -> Iterator[Check]:
    """Compare the receive scaling, the mean of alpha, and each device's alpha."""
    record, law = _record(bench, "zero bias"), math.sqrt(STRENGTH.min() / (2.0 * math.e))
    yield check_exact(law, math.sqrt(float(record.eta.mean())), case="receive scaling")
    alpha = _alpha(_pre_scaler_gamma(record))
    yield check_exact(law, float(alpha[np.abs(alpha - law).argmax()]), case="each device")


@state_law("power pre_scaler: mean gain", f"{CONVEX}; E c_k = K alpha_k / sum alpha", *EACH_PLAN)
def _mean_gain(bench: Bench, plan: str) -> Iterator[Check]:
    """Compare the mean gain of each kind of device, silence included."""
    record = _record(bench, plan)
    alpha = _alpha(_pre_scaler_gamma(record))
    for kind, budget_db in enumerate(BUDGETS_DB):
        law = len(alpha) * alpha[kind] / alpha.sum()
        yield check_mean(law, record.c[..., kind :: len(BUDGETS_DB)], f"{budget_db:g} dB")


@state_law("power pre_scaler: silent fraction", f"{CONVEX}; 1 - exp(-gamma^2 / s)", *EACH_PLAN)
def _silent(bench: Bench, plan: str) -> Iterator[Check]:
    record = _record(bench, plan)
    chance = 1.0 - np.exp(-(_pre_scaler_gamma(record) ** 2) / STRENGTH)
    for kind, budget_db in enumerate(BUDGETS_DB):
        silent = record.p[..., kind :: len(BUDGETS_DB)] == 0
        yield check_share(float(chance[kind]), int(silent.sum()), silent.size, f"{budget_db:g} dB")


THRESHOLDS = (0.1, 0.5)
CONSTRAINTS = ("average", "peak")


@state_law(
    "transport digital: outage of truncation",
    "1 - exp(-g_th)",
    "g_th={:g}",
    THRESHOLDS,
)
def _truncation(bench: Bench, threshold: float) -> Iterator[Check]:
    """Count the silent devices, those with |h|^2 below the threshold."""
    reports = _send_truncated(bench, threshold)
    asked = DEVICES * TRIALS * len(reports)
    silent = asked - sum(float(report.participants.sum()) for report in reports)
    yield check_share(-math.expm1(-threshold), int(silent), asked)


@state_law(
    "transport digital: power of truncation",
    "P, or P exp(g_th) under an average constraint",
    "{}",
    CONSTRAINTS,
)
def _truncated_power(bench: Bench, constraint: str) -> Iterator[Check]:
    """Compare the power of the active devices with the budget, on its own part of the band too.

    Under a peak constraint |p|^2 is P, and never more. An average constraint has P / Pr(|h|^2 >=
    g_th), which is P exp(g_th) under Rayleigh fading.
    """
    least = THRESHOLDS[1]
    law = SNR * (1.0 if constraint == "peak" else math.exp(THRESHOLDS[1]))
    for access in ACCESS:
        setting = {"access": access, "constraint": constraint}
        reports = _send_truncated(bench, THRESHOLDS[1], **setting)
        power = np.concatenate([report.power.cpu().numpy().ravel() for report in reports])
        used = power[power > 0]
        yield check_ratios(used, np.full_like(used, law), case=access)
    if constraint == "average":  # of two antennas the chance is that of Gamma(2, 1/2), by counting
        setting = {"constraint": constraint}
        reports = _send_truncated(bench, least, {"antennas": 2}, **setting)
        power = np.concatenate([report.power.cpu().numpy().ravel() for report in reports]) / SNR
        chance = math.exp(-2.0 * least) * (1.0 + 2.0 * least)
        counted = 6.0 * math.sqrt((1.0 / chance - 1.0) / 4096)
        yield check_mean(1.0, power, "two antennas, mean", bias=counted)


def _send_truncated(
    bench: Bench, threshold: float, channel: Any = None, **transport: Any
) -> list[LinkReport]:
    """Return the reports of many rounds with a gain threshold, by default at a peak constraint."""
    setting = {"gain_threshold": threshold, "constraint": "peak", "shares": "active"}
    rig = build_digital_rig(bench, setting | transport, channel)
    rounds = range(bench.scale_size(128))
    return [rig.send(rig.draw_symbols(REALS, round), round)[1] for round in rounds]
