"""Say where devices and servers are, for who draws a map of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ground:
    """Hold what a place looks like from above.

    x_m: [X], y_m: [Y] of its cells. coverage_db: [Y, X] gain to the base station, in the unit of
    the devices' large-scale gains, NaN where nothing is known. roof_m: [Y, X] height of what stands
    there, 0 in the street. attribution: whom the data are owed to.
    """

    x_m: np.ndarray
    y_m: np.ndarray
    coverage_db: np.ndarray
    roof_m: np.ndarray
    attribution: str


@dataclass(frozen=True)
class Positions:
    """Hold where a trial's devices [K, 2] and base stations [B, 2] are, in metres, and what the
    place looks like, if that is known."""

    device_m: np.ndarray
    base_m: np.ndarray
    ground: Ground | None = None
