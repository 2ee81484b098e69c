"""Laws of Rayleigh and Rician fading: distributions, independence, and the line of sight.

Fading is drawn in single precision, which runs use.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats

from otafl.channels.rician import Rician
from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench
from otafl.validation.channels import MOVING
from otafl.validation.checks import (
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_uncorrelated,
    state_law,
)

K_FACTORS_DB = (-5.0, 0.0, 4.0, 10.0)
MOTIONS: dict[str, dict[str, Any]] = {"at rest": {}, "moving": MOVING}


def _draw(bench: Bench, devices: int, trials: int, rounds: int, **channel: Any) -> np.ndarray:
    """Draw h [R, S, K, A, B] of a flat channel, with as many blocks as `blocks`."""
    blocks = channel.pop("blocks", 1)
    point = {"channel": channel, "power": "full"}
    rig = bench.build_rig(devices, trials, point, dtype=torch.float32)
    h = rig.draw_fading(rounds, blocks * (channel.get("block_symbols") or 1))
    return h[..., 0].astype(np.complex128)


def _phase(h: np.ndarray) -> np.ndarray:
    """Return the phase of each number as a share of the circle."""
    return np.asarray(np.angle(h) / (2.0 * np.pi) + 0.5)


def _independent(h: np.ndarray, axes: str) -> Iterator[Check]:
    """Check every pair along each axis of h; the other axes are draws."""
    for axis, name in enumerate(axes.split()):
        yield check_uncorrelated(np.moveaxis(h, axis, 0).reshape(h.shape[axis], -1), name)


@functools.lru_cache(maxsize=2)
def _rayleigh(bench: Bench) -> np.ndarray:
    """Draw h [R, S, K]."""
    return _draw(bench, 70, 10, bench.scale_size(200), name="rayleigh")[..., 0, 0]


@functools.lru_cache(maxsize=2)
def _rayleigh_blocks(bench: Bench) -> np.ndarray:
    """Draw h [R, S, K, A, B]."""
    keys = {"name": "rayleigh", "antennas": 3, "block_symbols": 10, "blocks": 7}
    return _draw(bench, 40, 5, bench.scale_size(40), **keys)


@state_law("channel rayleigh: gain", "|h|^2 is exponential")
def _rayleigh_gain(bench: Bench) -> Iterator[Check]:
    """Compare the distribution, the mean and the mean square of |h|^2."""
    gain = np.abs(_rayleigh(bench)) ** 2
    yield check_distribution(gain, stats.expon.cdf)
    yield check_mean(1.0, gain, "mean")
    yield check_mean(2.0, gain**2, "mean square")
    yield check_distribution(
        np.abs(_rayleigh_blocks(bench)) ** 2, stats.expon.cdf, "blocks and antennas"
    )


@state_law("channel rayleigh: phase", "uniform")
def _rayleigh_phase(bench: Bench) -> Iterator[Check]:
    """Compare the distributions of the phase, and of the real part, which is normal."""
    h = _rayleigh(bench)
    yield check_distribution(_phase(h), stats.uniform.cdf)
    yield check_distribution(h.real * math.sqrt(2.0), stats.norm.cdf, "real part")
    yield check_distribution(
        _phase(_rayleigh_blocks(bench)), stats.uniform.cdf, "blocks and antennas"
    )


@state_law("channel rayleigh: independence", "rounds, trials, devices, antennas, blocks")
def _independence(bench: Bench) -> Iterator[Check]:
    yield from _independent(_rayleigh(bench), "rounds trials devices")
    for one in _independent(_rayleigh_blocks(bench), "rounds trials devices antennas blocks"):
        yield Check(one.expected, one.measured, one.low, one.high, f"{one.case}, with blocks")


@state_law("channel rician: amplitude", "Rice's law of K", "K={:g} dB", K_FACTORS_DB)
def _rician(bench: Bench, k_db: float) -> Iterator[Check]:
    """Compare |h|, its mean and its mean square, and the phase, of a round.

    The line of sight has K/(K + 1) of the power, and the rest is scattered.
    """
    k = db_to_linear(k_db)
    law = stats.rice(math.sqrt(2.0 * k), scale=math.sqrt(0.5 / (k + 1.0)))
    for case, moving in MOTIONS.items():
        keys = {"name": "rician", "k_factor_db": k_db} | moving
        h = _draw(bench, 50, bench.scale_size(400), 1, **keys)
        yield check_distribution(np.abs(h), law.cdf, case)
        yield check_distribution(_phase(h), stats.uniform.cdf, f"{case}, phase")
        yield check_mean(1.0, np.abs(h) ** 2, f"{case}, mean square")
        yield check_mean(float(law.mean()), np.abs(h), f"{case}, mean")
    point = {"channel": {"name": "rician", "k_factor_db": k_db}, "power": "full"}
    channel = bench.build_rig(1, 1, point).link.channel
    assert isinstance(channel, Rician)
    yield check_exact(
        float(law.mean()), float(channel.unit_mean_amplitude), case="as policies know it"
    )


@state_law("channel rician: line of sight", "K/(K + 1) of the power, a device's own")
def _line_of_sight(bench: Bench) -> Iterator[Check]:
    """Compare the mean of each device over 400 rounds with its line of sight.

    Its power, less that of the remaining scattered part, is K/(K + 1). Its product with that of the
    next device has a mean of 0.
    """
    k, rounds = db_to_linear(3.0), 400
    h = _draw(bench, bench.scale_size(300), 1, rounds, name="rician", k_factor_db=3.0)[
        :, 0, :, 0, 0
    ]
    line = h.mean(0)
    yield check_mean(k / (k + 1.0), np.abs(line) ** 2 - h.var(0) / rounds, "power")
    yield check_mean(0.0, (line[:-1:2] * line[1::2].conj()).real, "devices")
    rest = np.abs(h - line) ** 2 * (k + 1.0) * rounds / (rounds - 1.0)
    yield check_distribution(rest, stats.expon.cdf, "scattered")
