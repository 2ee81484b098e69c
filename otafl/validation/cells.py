"""Laws of places: 3GPP cells, a reconfigurable surface, and several servers.

The channel with a surface is h = sqrt(1 - b) d + sqrt(r) times the sum of the paths of M elements,
each of which is the product of two Rayleigh fading paths.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, Rig
from otafl.validation.channels import CARRIER_HZ, TR_38901
from otafl.validation.checks import Check, check_exact, check_mean, check_share, state_law

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


DROPPED = {"inh": 2.0, "inf": 6.5}
"""Heights of the server above the devices of an office and a factory hall, in metres."""


def compute_hall_losses(name: str, far: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the path losses in dB with and without a line of sight at distances far [m] in space.

    The factory has sparse clutter and a high server (3GPP TR 38.901, table 7.4.1-1).
    """
    d, ghz = np.log10(far), math.log10(CARRIER_HZ / 1e9)
    if name == "inh":
        return 32.4 + 17.3 * d + 20.0 * ghz, 17.3 + 38.3 * d + 24.9 * ghz
    return 31.84 + 21.5 * d + 19.0 * ghz, 32.4 + 23.0 * d + 20.0 * ghz


@state_law("hall: path loss and share with line of sight", f"{TR_38901}, 7.4", "{}", DROPPED)
def _hall(bench: Bench, name: str) -> Iterator[Check]:
    """Compare each loss with the nearer one of its distance, and count those with a line of sight.

    The office is open, and the clutter of the factory is 2 m high.
    """
    rig = drop(bench, name, 64, bench.scale_size(16), shadowing=False)
    places = (rig.link.channel.get_positions(0, trial) for trial in range(rig.num_trials))
    d = np.stack([np.linalg.norm(one.device_m, axis=1) for one in places if one is not None])
    losses = np.stack(compute_hall_losses(name, np.hypot(d, DROPPED[name])))
    off = -level_db(rig) - np.maximum(losses, losses[0])
    nearer = np.abs(off).argmin(0)
    yield check_exact(0.0, float(np.abs(off).min(0).max()), 1e-4, "path loss")
    if name == "inh":
        far = np.where(d <= 49.0, np.exp(-(d - 5.0) / 70.8), 0.54 * np.exp(-(d - 49.0) / 211.7))
        law = np.where(d <= 5.0, 1.0, far)
    else:
        law = np.exp(d * math.log1p(-0.2) / 10.0 * (2.0 - DEVICE_M) / (8.0 - DEVICE_M))
    seen = nearer == 0
    yield check_mean(float(law.mean()), seen - law + law.mean(), CLEAR)


WU = "Wu, Zhang 2019"

SIZES = (4, 16, 64)
BLOCKED = 0.36
REFLECTED_DB = -10.0

DIRECT, R = math.sqrt(1.0 - BLOCKED), db_to_linear(REFLECTED_DB)
AMPLITUDE = math.sqrt(math.pi) / 2.0
"""Mean amplitude E|d| of a path."""

ROUNDS = 8


@state_law("surface align_weakest: power grows as M^2", f"{WU}, Proposition 2", "M={}", SIZES)
def _power(bench: Bench, elements: int) -> Iterator[Check]:
    """Compare E|h|^2 with 1 - b + r [M + M (M - 1) (pi/4)^2] and the product of both paths."""
    surface = {"elements": elements, "reflected_db": REFLECTED_DB, "blocked": BLOCKED}
    fading = {"name": "rayleigh", "ris": surface | {"rule": "align_weakest"}}
    rig = bench.build_rig(1, bench.scale_size(256), {"channel": fading, "power": "full"})
    h = rig.draw_fading(ROUNDS)
    reflected = R * (elements + elements * (elements - 1) * AMPLITUDE**4)
    both = 2.0 * DIRECT * AMPLITUDE * math.sqrt(R) * elements * AMPLITUDE**2
    yield check_mean(1.0 - BLOCKED + reflected + both, (np.abs(h) ** 2).mean((0, 2, 3, 4, 5)))


FRONTIER = "signals of all others"

DEVICES = 4
REALS = 256


def _interference(bench: Bench, channel: dict[str, Any], cross_gain_db: float) -> np.ndarray:
    """Return the interference of each of three servers over its law sum g |p|^2 m / 2.

    The result is [rounds, S C].
    """
    cells = {"name": "cells", "servers": 3, "cross_gain_db": cross_gain_db}
    points = {"channel": channel, "power": "full", "topology": cells}
    rig = bench.build_rig(DEVICES, 32, points)
    found = []
    for round in range(bench.scale_size(32)):
        saved = rig.send(rig.draw_symbols(REALS, round), round)[1].saved_tensors
        sent = (saved["p/0"][:, 0].abs().square() * saved["m/0"][:, 0]).sum(1).view(-1, 3)
        others = (sent.sum(1, keepdim=True) - sent).flatten()
        law = db_to_linear(cross_gain_db) * others / 2.0
        found.append((saved["neighbours/0"].sum(1) / REALS / law).cpu().numpy())
    return np.stack(found)


@state_law(
    "topology cells: interference", f"{FRONTIER}; sum g |p|^2 m / 2", "{:g} dB", (-10.0, 0.0)
)
def _interference_level(bench: Bench, cross_gain_db: float) -> Iterator[Check]:
    """Compare the interference on two channels.

    A trial's three servers receive some of the same devices, over channels of their own. Only their
    mean therefore counts as one number.
    """
    for name in ("rayleigh", "rician"):
        found = _interference(bench, {"name": name, "snr_db": 10.0}, cross_gain_db)
        yield check_mean(1.0, found.reshape(len(found), -1, 3).mean(2), name)
