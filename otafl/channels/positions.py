"""Positions of devices and servers, for maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ground:
    """Map of a place.

    Parameters
    ----------
    x_m, y_m : ndarray [X] and [Y]
        Coordinates of its cells in metres.
    coverage_db : ndarray [Y, X]
        Gain to the base station in dB, in the unit of the devices' large-scale gains; NaN if
        unknown.
    roof_m : ndarray [Y, X]
        Height of buildings in metres, 0 in the street.
    attribution : str
        Source of the map data.
    """

    x_m: np.ndarray
    y_m: np.ndarray
    coverage_db: np.ndarray
    roof_m: np.ndarray
    attribution: str


@dataclass(frozen=True)
class Positions:
    """Positions of a trial's devices and base stations.

    Parameters
    ----------
    device_m : ndarray [K, 2]
        Positions of the devices in metres.
    base_m : ndarray [B, 2]
        Positions of the base stations in metres.
    ground : Ground, optional
        Map of the place.
    """

    device_m: np.ndarray
    base_m: np.ndarray
    ground: Ground | None = None
