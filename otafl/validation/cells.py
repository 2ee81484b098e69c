"""Laws of 3GPP cells: path loss and the share of devices with a line of sight."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.validation.bench import Bench, Rig
from otafl.validation.channels import CARRIER_HZ, TR_38901
from otafl.validation.checks import (
    Check,
    check_exact,
    check_share,
    state_law,
)

DISTANCE_M = {"umi": 60.0, "uma": 100.0, "rma": 1000.0}
HEIGHT_M = {"umi": 10.0, "uma": 25.0, "rma": 35.0}
DEVICE_M = 1.5


CLEAR, HIDDEN, INDOORS = "line of sight", "none", "indoors"


def drop(bench: Bench, name: str, devices: int, trials: int, **channel: Any) -> Rig:
    """Build the uplink of a cell whose devices are dropped at random."""
    section = {"name": name, "carrier_hz": CARRIER_HZ, "subcarrier_groups": 1} | channel
    return bench.build_rig(devices, trials, {"channel": section, "power": "full"})


def outdoors(name: str) -> dict[str, Any]:
    """Return the settings of a cell with path loss only."""
    cars = {"in_car": False} if name == "rma" else {}
    return {"indoor_probability": 0.0, "shadowing": False} | cars


def level_db(rig: Rig, round: int = 0) -> np.ndarray:
    """Return the large-scale gains in dB, [S, K]."""
    gain = rig.link.channel.get_large_scale_state(round).gain.cpu().numpy()
    return np.asarray(10.0 * np.log10(gain))


@functools.lru_cache(maxsize=8)
def _ring(bench: Bench, name: str) -> np.ndarray:
    """Return path losses in dB of devices at the same distance."""
    ring = {"cell_radius_m": DISTANCE_M[name] + 1e-3, "min_distance_m": DISTANCE_M[name]}
    return -level_db(drop(bench, name, 40, bench.scale_size(16), **outdoors(name), **ring)).ravel()


def compute_losses(name: str, distance_m: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Compute the path losses in dB of devices at a height of 1.5 m, below the breakpoint.

    Parameters
    ----------
    name : str
        Name of the cell's channel.
    distance_m : ndarray or float
        Distances on the ground.

    Returns
    -------
    tuple of two ndarray
        Path losses with and without a line of sight, by 3GPP TR 38.901, table 7.4.1-1.
    """
    height, ghz = HEIGHT_M[name], CARRIER_HZ / 1e9
    far = np.hypot(distance_m, height - DEVICE_M)
    d = np.log10(far)
    if name == "umi":
        seen = 32.4 + 21.0 * d + 20.0 * math.log10(ghz)
        hidden = 35.3 * d + 22.4 + 21.3 * math.log10(ghz)
    elif name == "uma":
        seen = 28.0 + 22.0 * d + 20.0 * math.log10(ghz)
        hidden = 13.54 + 39.08 * d + 20.0 * math.log10(ghz)
    else:
        house, street = 5.0, 20.0
        seen = 20.0 * (math.log10(40.0 * math.pi * ghz / 3.0) + d)
        seen = seen + min(0.03 * house**1.72, 10.0) * d
        seen = seen - min(0.044 * house**1.72, 14.77) + 0.002 * math.log10(house) * far
        fixed = 161.04 - 7.1 * math.log10(street) + 7.5 * math.log10(house)
        fixed -= (24.37 - 3.7 * (house / height) ** 2) * math.log10(height)
        fixed += 20.0 * math.log10(ghz) - (3.2 * math.log10(11.75 * DEVICE_M) ** 2 - 4.97)
        hidden = fixed + (43.42 - 3.1 * math.log10(height)) * (d - 3.0)
    return seen, np.maximum(seen, hidden)


@state_law("cell: path loss", f"{TR_38901}, table 7.4.1-1", "{}", DISTANCE_M)
def _path_loss(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the smallest and the largest loss; the ring is 1 mm wide."""
    seen, hidden = compute_losses(name, DISTANCE_M[name])
    loss = _ring(bench, name)
    yield check_exact(float(seen), float(loss.min()), 1e-4, CLEAR)
    yield check_exact(float(hidden), float(loss.max()), 1e-4, HIDDEN)


@state_law("cell: share with line of sight", f"{TR_38901}, table 7.4.2-1", "{}", DISTANCE_M)
def _line_of_sight(bench: Bench, name: str) -> Iterator[Check]:
    """Count the devices with a line of sight."""
    d = DISTANCE_M[name]
    law = math.exp(-(d - 10.0) / 1000.0)
    if name != "rma":
        law = 18.0 / d + math.exp(-d / {"umi": 36.0, "uma": 63.0}[name]) * (1.0 - 18.0 / d)
    loss = _ring(bench, name)
    seen = loss < sum(compute_losses(name, d)) / 2.0
    yield check_share(law, int(seen.sum()), seen.size)
