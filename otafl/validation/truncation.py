"""Laws of digital devices that are silent in deep fades: outage, power and airtime."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.core.contracts import LinkReport
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, check_mean, check_ratios, check_share, state_law
from otafl.validation.packets import (
    ACCESS,
    DEVICES,
    REALS,
    SNR,
    TRIALS,
    build_digital_rig,
)

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
