"""Laws of 3GPP cells: path loss, line of sight, shadowing, penetration loss and K-factor."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from scipy import stats

from otafl.laws.bench import Bench, Rig
from otafl.laws.channels import CARRIER_HZ, TR_38901
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

DISTANCE_M = {"umi": 60.0, "uma": 100.0, "rma": 1000.0}
HEIGHT_M = {"umi": 10.0, "uma": 25.0, "rma": 35.0}
DEVICE_M = 1.5

RADIUS_M = {"umi": 200.0, "uma": 300.0, "rma": 2500.0}
"""Radius of the cells, large compared with the correlation distance of neighbouring links."""

CLEAR, HIDDEN, INDOORS = "line of sight", "none", "indoors"

SHADOWING_DB = {"umi": (4.0, 7.82, 7.0), "uma": (4.0, 6.0, 7.0), "rma": (4.0, 8.0, 8.0)}
"""Standard deviations with a line of sight, without one, and indoors."""

ALIKE = 2.0
"""Factor by which the correlated shadowing of neighbours reduces the degrees of freedom."""

K_FACTOR_DB = {"umi": (9.0, 5.0), "uma": (9.0, 3.5), "rma": (7.0, 4.0)}
"""Mean and standard deviation of the K-factor."""

WIDE_HZ, GROUPS = 100e6, 32
"""Band over which scattered rays give many observations of a device."""

PARTS = np.array([10.0, 6.0, 4.0]) / 20.0
"""Shares of a strong cluster's rays in its three sub-clusters."""

ROUNDS = 8


def list_laws() -> Iterator[Law]:
    """List the laws of each cell."""
    for name in DISTANCE_M:
        yield cell_law(name, "path loss", "table 7.4.1-1", _path_loss)
        yield cell_law(name, "line of sight", "table 7.4.2-1", _line_of_sight)
        yield cell_law(name, "shadowing", "table 7.5-6", _shadowing)
        yield cell_law(name, "penetration loss", "7.4.3", _penetration)
        yield cell_law(name, "K-factor", "table 7.5-6", _k_factor)
        yield cell_law(name, "power of the line of sight", "eq. 7.5-30", _direct_power)
        yield cell_law(name, "frequency covariance", "eq. 7.5-27", _frequency)
        yield cell_law(name, "mean gain", "snr_db is that of a trial's mean gain", _mean_gain)


def cell_law(name: str, what: str, source: str, run: Callable[..., Iterable[Check]]) -> Law:
    """Return a law of a cell, whose checks are run with its name."""
    run = functools.partial(run, name=name)
    return Law(f"channel {name}: {what}", f"{TR_38901}, {source}", run)


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


def part_of(rig: Rig, name: str) -> np.ndarray:
    """Return an attribute of the channel or of its `links`, [S, K, ...]."""
    channel: Any = rig.link.channel
    value = getattr(channel, name) if hasattr(channel, name) else getattr(channel.links, name)
    return np.asarray(value.cpu().numpy())


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


def _path_loss(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the smallest and the largest loss; the ring is 1 mm wide."""
    seen, hidden = compute_losses(name, DISTANCE_M[name])
    loss = _ring(bench, name)
    yield check_exact(float(seen), float(loss.min()), 1e-4, CLEAR)
    yield check_exact(float(hidden), float(loss.max()), 1e-4, HIDDEN)


def _line_of_sight(bench: Bench, name: str) -> Iterator[Check]:
    """Count the devices with a line of sight."""
    d = DISTANCE_M[name]
    law = math.exp(-(d - 10.0) / 1000.0)
    if name != "rma":
        law = 18.0 / d + math.exp(-d / {"umi": 36.0, "uma": 63.0}[name]) * (1.0 - 18.0 / d)
    loss = _ring(bench, name)
    seen = loss < sum(compute_losses(name, d)) / 2.0
    yield check_share(law, int(seen.sum()), seen.size)


@functools.lru_cache(maxsize=4)
def _cell(bench: Bench, name: str) -> Rig:
    """Drop devices in a whole cell: half of them indoors, and in rma the others in cars."""
    wide = {"bandwidth_hz": WIDE_HZ, "subcarrier_groups": GROUPS}
    trials = 10 if bench.quick else 20  # the time of a trial does not depend on its devices
    size = {"cell_radius_m": RADIUS_M[name], "indoor_probability": 0.5}
    return drop(bench, name, 64, trials, **size, **wide)


def _kinds(rig: Rig) -> dict[str, np.ndarray]:
    """Return the masks [S, K] of devices with a line of sight, without one, and indoors."""
    seen, indoor = part_of(rig, "line_of_sight"), part_of(rig, "indoor")
    return {CLEAR: seen & ~indoor, HIDDEN: ~seen & ~indoor, INDOORS: indoor}


def _shadowing(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the mean square of the gains in dB, without path and penetration loss."""
    rig = _cell(bench, name)
    shadowing = level_db(rig) + part_of(rig, "path_loss_db") + part_of(rig, "penetration_db")
    for (kind, here), spread in zip(_kinds(rig).items(), SHADOWING_DB[name], strict=True):
        ratio = (shadowing[here] / spread) ** 2
        yield check_mean_square(spread**2, ratio, int(ratio.size / ALIKE), kind)
    spreads = np.select([*_kinds(rig).values()], SHADOWING_DB[name])
    normal = shadowing / spreads
    few = normal[:, :16]  # of which hardly any two are neighbours
    yield check_distribution(few, stats.norm.cdf, "log-normal")
    far = math.sqrt(3.0)  # which no number of an even distribution exceeds
    beyond, of = (round(n / ALIKE) for n in ((np.abs(normal) > far).sum(), normal.size))
    yield check_share(2.0 * stats.norm.sf(far), beyond, of, "tails")


def _penetration(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the penetration loss in dB with that of walls, of the way inside and of cars.

    In umi and uma below 6 GHz it is 20 + U(0, 25)/2. Otherwise it is that of a low-loss house with
    30 % of glass, min(U, U)/2 for the way inside, and N(0, 4.4). That of a car is N(9, 5).
    """
    rig = _cell(bench, name)
    loss = part_of(rig, "shadowing_db") - level_db(rig) - part_of(rig, "path_loss_db")
    indoor = part_of(rig, "indoor")
    if name != "rma":
        yield check_distribution(loss[indoor], stats.uniform(20.0, 12.5).cdf, INDOORS)
        yield check_exact(0.0, float(np.abs(loss[~indoor]).max()), 1e-9, "outdoors")
        high = drop(
            bench, name, 64, 8, indoor_probability=1.0, cell_radius_m=RADIUS_M[name],
            o2i_loss="high", carrier_hz=10e9,
        )  # fmt: skip
        loss = part_of(high, "shadowing_db") - level_db(high) - part_of(high, "path_loss_db")
        yield from _house(loss.ravel(), 10.0, 0.7, 23.0 + 0.3 * 10.0, 6.5, 25.0, "high, 10 GHz")
    else:
        ghz = CARRIER_HZ / 1e9
        yield from _house(loss[indoor], ghz, 0.3, 2.0 + 0.2 * ghz, 4.4, 10.0, INDOORS)
        yield check_distribution(loss[~indoor], stats.norm(9.0, 5.0).cdf, "in cars")


def _house(
    loss: np.ndarray, ghz: float, glass: float, glass_db: float, spread: float, deep: float,
    case: str,
) -> Iterator[Check]:  # fmt: skip
    """Check mean and variance of the loss of a house.

    A share `glass` of the house is glass and the rest concrete, and devices are up to `deep` metres
    inside.
    """
    concrete_db = 5.0 + 4.0 * ghz
    through = glass * 10.0 ** (-glass_db / 10.0) + (1.0 - glass) * 10.0 ** (-concrete_db / 10.0)
    middle = 5.0 - 10.0 * math.log10(through) + 0.5 * deep / 3.0  # E min(U, U) = 1/3
    variance = spread**2 + (0.5 * deep) ** 2 / 18.0
    yield check_mean(middle, loss, f"{case}, mean")
    yield check_mean(variance, (loss - middle) ** 2, f"{case}, variance")


def _k_factor(bench: Bench, name: str) -> Iterator[Check]:
    """Check mean and variance in dB of devices with a line of sight; others have no K-factor."""
    rig = _cell(bench, name)
    seen, factor = _kinds(rig)[CLEAR], part_of(rig, "k_factor")
    middle, spread = K_FACTOR_DB[name]
    level = 10.0 * np.log10(factor[seen])
    yield check_mean(middle, level, "mean")
    yield check_mean(spread**2, (level - middle) ** 2, "variance")
    yield check_exact(0.0, float(factor[~part_of(rig, "line_of_sight")].max()), 0.0, "without")


def _direct_power(bench: Bench, name: str) -> Iterator[Check]:
    """Compare E|h|^4 of devices with a line of sight with 2 - sum P^2, for waves of random phases.

    The line of sight has the power K/(K + 1), and each ray a 20th of its cluster's share of the
    rest.
    """
    rig = _cell(bench, name)
    seen = _kinds(rig)[CLEAR]
    direct = (part_of(rig, "k_factor") / (1.0 + part_of(rig, "k_factor")))[seen]
    rays = (part_of(rig, "power")[seen] ** 2).sum(-1) / 20.0
    law = 2.0 - direct**2 - (1.0 - direct) ** 2 * rays
    fourth = (np.abs(rig.draw_fading(ROUNDS)) ** 4).mean((0, 3, 4, 5))
    yield check_mean(float(law.mean()), fourth[seen] - law + law.mean())


def _frequency(bench: Bench, name: str) -> Iterator[Check]:
    """Compare E h(f) h(g)^* of groups 1 and 8 apart with the sum over a device's own clusters.

    The sum is that of P exp(-2 pi j (f - g) tau). The two strongest clusters have parts of 10, 6
    and 4 of their 20 rays, which are 0, 1.28 and 2.56 cluster spreads late.
    """
    rig = _cell(bench, name)
    h = rig.draw_fading(ROUNDS)[:, :, :, 0, 0]
    power, delay_s, late_s = (part_of(rig, one) for one in ("power", "delay_s", "cluster_spread_s"))
    split = np.zeros(power.shape, dtype=bool)
    np.put_along_axis(split, part_of(rig, "strongest"), True, -1)
    direct = part_of(rig, "k_factor") / (1.0 + part_of(rig, "k_factor"))
    for lag in (1, 8):
        turn = -2j * math.pi * lag * WIDE_HZ / GROUPS
        parts = np.exp(turn * late_s[..., None] * np.array([0.0, 1.28, 2.56])) @ PARTS
        spread = np.where(split, parts[..., None], 1.0)
        law = (1.0 - direct) * (power * spread * np.exp(turn * delay_s)).sum(-1)
        law += direct * np.exp(turn * delay_s.min(-1))
        off = (h[..., lag:] * h[..., :-lag].conj()).mean((0, -1)) - law
        middle = law.mean()
        yield check_mean(float(middle.real), off.real + middle.real, f"{lag} apart, real")
        yield check_mean(float(middle.imag), off.imag + middle.imag, f"{lag} apart, imaginary")


def _mean_gain(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the mean gain over a trial's devices with 1, if budgets are an SNR."""
    rig = drop(bench, name, 16, 4, snr_db=10.0)
    yield check_ratios((10.0 ** (level_db(rig) / 10.0)).mean(1), np.ones(4))


CELL = "otafl.channels.cell:Cell"

DROP = "otafl.channels.cell_drop:SionnaCell.draw_batch"
