"""Decibels to linear and back. Only scenario files and figures speak in decibels."""

from __future__ import annotations

import math

THERMAL_NOISE_DBM_PER_HZ = -174.0
"""Thermal noise power density at 290 K."""


def db_to_linear(value_db: float) -> float:
    """Power ratio of a level in dB."""
    return 10.0 ** (value_db / 10.0)


def linear_to_db(ratio: float) -> float:
    """Level in dB of a power ratio; -inf for 0."""
    return 10.0 * math.log10(ratio) if ratio > 0 else -math.inf


def dbm_to_watt(value_dbm: float) -> float:
    """Power in W of a level in dBm."""
    return 10.0 ** (value_dbm / 10.0 - 3.0)


def watt_to_dbm(power_w: float) -> float:
    """Level in dBm of a power in W; -inf for 0."""
    return linear_to_db(power_w) + 30.0


def noise_power_w(bandwidth_hz: float, noise_figure_db: float) -> float:
    """Thermal noise power in W in a band, with the receiver's noise figure."""
    return dbm_to_watt(THERMAL_NOISE_DBM_PER_HZ + noise_figure_db) * bandwidth_hz
