"""Laws of devices that move through a 3GPP cell: positions, path loss and shadowing."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
from scipy import stats

from otafl.laws.bench import Bench, Rig
from otafl.laws.cells import (
    ALIKE,
    DISTANCE_M,
    RADIUS_M,
    SHADOWING_DB,
    cell_law,
    compute_losses,
    drop,
    level_db,
    outdoors,
    part_of,
)
from otafl.laws.channels import SPEED_KMH
from otafl.laws.checks import (
    Check,
    Law,
    check_distribution,
    check_exact,
    check_mean,
    check_mean_square,
    check_ratios,
    check_share,
)

WALKED = ("umi", "rma")
"""Cells in which devices move."""

APART_M = {"umi": (10.0, 13.0), "rma": (37.0, 120.0)}
"""Correlation distances of shadowing, with and without a line of sight."""

INDOORS = {"umi": 0.8, "rma": 0.5}
"""Share of the devices that are indoors, TR 38.901, 7.2."""

STEPS = 60


def list_laws() -> Iterator[Law]:
    """List the laws of each cell in which devices move."""
    for name in WALKED:
        yield cell_law(name, "even over the ground", "devices by area", _even)
        yield cell_law(name, "share indoors", "tables 7.2-1 and 7.2-3", _indoors)
        yield cell_law(name, "path loss of moving devices", "table 7.4.1-1", _moving_loss)
        yield cell_law(name, "shadowing of moving devices", "eq. 7.4-5", _moving_shadowing)


@functools.lru_cache(maxsize=4)
def _build_moved(bench: Bench, name: str, shadowing: bool) -> Rig:
    """Draw moving outdoor devices; none is near the server, where the path loss hardly changes."""
    way = {"mobility": "linear", "speed_kmh": SPEED_KMH, "round_interval_s": 1.0}
    size = {"cell_radius_m": RADIUS_M[name], "min_distance_m": DISTANCE_M[name]}
    trials = 8 if bench.quick else 16
    settings = outdoors(name) | {"shadowing": shadowing}
    return drop(bench, name, 64, trials, **settings, **way, **size)


@functools.lru_cache(maxsize=4)
def _distances(bench: Bench, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances [3, S, K] of rounds 0 to 2 that explain the path losses.

    The mask [S, K] is that of devices that cannot have reached the edge of the cell.
    """
    rig = _build_moved(bench, name, False)
    seen = part_of(rig, "line_of_sight")
    far = np.stack([_invert_path_loss(name, -level_db(rig, round), seen) for round in range(3)])
    return far, far[0] < RADIUS_M[name] - 2.0 * SPEED_KMH / 3.6


def _invert_path_loss(name: str, loss: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Solve for the distances of path losses, which increase with them, by bisection."""
    low, high = np.full_like(loss, 1.0), np.full_like(loss, 2.0 * RADIUS_M[name])
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        clear, hidden = compute_losses(name, middle)
        above = np.where(seen, clear, hidden) > loss
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2.0


def _even(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the squares of the distances that explain the path losses with a uniform law.

    The angles of the devices on the map are uniform too.
    """
    far, _ = _distances(bench, name)
    least, most = DISTANCE_M[name] ** 2, RADIUS_M[name] ** 2
    yield check_distribution(far[0] ** 2, stats.uniform(least, most - least).cdf, "distance")
    rig = _build_moved(bench, name, False)
    places = (rig.link.channel.get_positions(0, trial) for trial in range(rig.num_trials))
    x, y = np.concatenate([one.device_m for one in places if one is not None]).T
    yield check_distribution(np.arctan2(y, x) / (2.0 * np.pi) + 0.5, stats.uniform.cdf, "angle")


def _indoors(bench: Bench, name: str) -> Iterator[Check]:
    """Count the devices indoors."""
    indoor = part_of(drop(bench, name, 64, 2 if bench.quick else 8), "indoor")
    yield check_share(INDOORS[name], int(indoor.sum()), indoor.size)


def _moving_loss(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the second difference of d^2 with 2 v^2, for devices that move straight at v.

    The distances d are those that explain the path losses.
    """
    far, inside = _distances(bench, name)
    bend = (far[2] ** 2 - 2.0 * far[1] ** 2 + far[0] ** 2)[inside]
    yield check_ratios(bend, np.full_like(bend, 2.0 * (SPEED_KMH / 3.6) ** 2), 1e-5)


def _moving_shadowing(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the correlation of shadowing at a distance d with exp(-d / d_cor), and its power.

    The correlation is the same from the place of the drop and between two later places.
    """
    rig, plain = _build_moved(bench, name, True), _build_moved(bench, name, False)
    _, inside = _distances(bench, name)
    first, middle, later = (level_db(rig, round) - level_db(plain, round) for round in range(3))
    seen = part_of(rig, "line_of_sight")
    spread = np.where(seen, *SHADOWING_DB[name][:2])
    for case, before, steps in (("correlation", first, 2), ("later correlation", middle, 1)):
        law = np.exp(-steps * SPEED_KMH / 3.6 / np.where(seen, *APART_M[name]))
        product = before * later / spread**2 - law
        yield check_mean(float(law[inside].mean()), (product + law[inside].mean())[inside], case)
    start = first - part_of(rig, "shadowing_db")
    yield check_exact(0.0, float(np.abs(start).max()), 1e-6, "where it was dropped")
    power = (later / spread)[inside] ** 2
    yield check_mean_square(1.0, power, int(power.size / ALIKE), "power")
