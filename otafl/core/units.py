"""Constants, and conversion of decibels. Only scenario files and figures use decibels."""

from __future__ import annotations

from typing import Any, TypeVar

Level = TypeVar("Level", bound=Any)
"""A number, or an array or tensor of numbers."""

THERMAL_NOISE_DBM_PER_HZ = -174.0
"""Thermal noise power density at 290 K."""

LIGHT_M_PER_S = 299_792_458.0
"""Speed of light."""


def db_to_linear(value_db: Level) -> Level:
    """Return the power ratio of a level in dB."""
    ratio: Level = 10.0 ** (value_db / 10.0)
    return ratio


def dbm_to_watt(value_dbm: float) -> float:
    """Return the power in W of a level in dBm."""
    return 10.0 ** (value_dbm / 10.0 - 3.0)


def noise_power_w(bandwidth_hz: float, noise_figure_db: float) -> float:
    """Return the thermal noise power in W of a band, with the receiver's noise figure."""
    return dbm_to_watt(THERMAL_NOISE_DBM_PER_HZ + noise_figure_db) * bandwidth_hz
