"""Laws of devices: what hardware they have, and how long they compute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats

from otafl.core.rng import Streams
from otafl.devices.compute.base import Compute
from otafl.devices.compute.classes import Classes
from otafl.devices.compute.drawn import Drawn
from otafl.devices.compute.fixed import Fixed
from otafl.devices.compute.lognormal import Lognormal
from otafl.devices.compute.phone import Phone
from otafl.devices.hardware import Hardware
from otafl.devices.jitter import Jitter
from otafl.laws.bench import Bench
from otafl.laws.checks import (
    Check,
    check_at_least,
    check_distribution,
    check_exact,
    check_mean,
    check_mean_square,
    check_normal,
    counts,
    state_law,
)

SAMPLES = 20_000
"""Devices whose hardware is drawn."""


def _build_hardware(bench: Bench, section: Compute, seed: int) -> Hardware:
    return section.build_hardware(bench.scale_size(SAMPLES), np.random.default_rng(seed))


@state_law("compute classes: shares", "chi-square")
def _class_shares(bench: Bench) -> Iterator[Check]:
    shares = {1e9: 5.0, 2e9: 3.0, 4e9: 2.0}
    classes = [{"flops_per_s": speed, "share": share} for speed, share in shares.items()]
    section = Classes.model_validate({"classes": classes, "assignment": "random"})
    speeds = _build_hardware(bench, section, 3).flops_per_s
    found = np.array([(speeds == speed).sum() for speed in shares])
    yield check_exact(len(speeds), float(found.sum()), 0.0, "all devices")
    yield counts(len(speeds) * np.array(list(shares.values())) / 10.0, found, "shares")


MEDIAN, SIGMA = 3e9, 0.8
"""Median of log-normal speeds, and the standard deviation of their logarithms."""


def _check_logs(speeds: np.ndarray, case: str) -> Iterator[Check]:
    """Check log-normal speeds: the distribution, mean and variance of their logarithms."""
    logs, centre = np.log(speeds), math.log(MEDIAN)
    yield check_distribution(logs, stats.norm(centre, SIGMA).cdf, case)
    yield check_mean(centre, logs, f"{case}, mean")
    ratio = ((logs - centre) / SIGMA) ** 2
    yield check_mean_square(SIGMA**2, ratio, ratio.size, f"{case}, variance")


def _draw_quantities(bench: Bench) -> Hardware:
    section = Drawn.model_validate(
        {
            "flops_per_s": {"lognormal": {"median": MEDIAN, "sigma": SIGMA}},
            "battery_j": {"uniform": [100, 300]},
            "harvest_w": {"normal": {"mean": 2.0, "std": 1.5, "least": 1.0}},
            "memory_mb": {"choice": [1, 2, 2, 8]},
        }
    )
    return _build_hardware(bench, section, 4)


@state_law("compute drawn: laws of the quantities", "uniform, log-normal, normal, choice")
def _quantities(bench: Bench) -> Iterator[Check]:
    """Compare a quantity of each kind; the normal one is conditioned on values above its least."""
    devices = _draw_quantities(bench)
    yield from _check_logs(devices.flops_per_s, "log-normal")
    yield check_distribution(devices.battery_j, stats.uniform(100.0, 200.0).cdf, "uniform")
    above = stats.truncnorm((1.0 - 2.0) / 1.5, np.inf, 2.0, 1.5)
    yield check_distribution(devices.harvest_w, above.cdf, "normal")
    yield check_at_least(1.0, float(devices.harvest_w.min()), "least")
    memory = devices.memory_mb
    found = np.array([(memory == value).sum() for value in (1.0, 2.0, 8.0)])
    yield check_exact(memory.size, float(found.sum()), 0.0, "values")
    yield counts(memory.size * np.array([0.25, 0.5, 0.25]), found, "choice")


@state_law("compute drawn: independent quantities", "Spearman's rank correlation")
def _independent_quantities(bench: Bench) -> Iterator[Check]:
    devices = _draw_quantities(bench)
    columns = {name: getattr(devices, name) for name in ("flops_per_s", "battery_j", "harvest_w")}
    for (one, first), (other, second) in itertools.combinations(columns.items(), 2):
        yield _check_ranks(first, second, f"{one}, {other}")


def _check_ranks(first: np.ndarray, second: np.ndarray, case: str = "") -> Check:
    """Check that the rank correlation of independent pairs is 0; it is normal for many pairs."""
    found = float(stats.spearmanr(first, second).statistic)
    return check_normal(0.0, found, 1.0 / math.sqrt(len(first) - 1), case)


@state_law("compute lognormal: speeds", "log-normal")
def _speeds(bench: Bench) -> Iterator[Check]:
    section = Lognormal(median_flops_per_s=MEDIAN, sigma=SIGMA)
    yield from _check_logs(_build_hardware(bench, section, 1).flops_per_s, "logarithms")


@state_law("compute phone: speeds", "uniform, four operations a cycle at 1 to 2 GHz")
def _phones(bench: Bench) -> Iterator[Check]:
    speeds = _build_hardware(bench, Phone(), 2).flops_per_s
    yield check_distribution(speeds, stats.uniform(4e9, 4e9).cdf)


SCALES = (0.8, 0.3)
"""Scales of the jitter of two trials."""


def _draw_jitter(bench: Bench, kind: Any, round: int) -> np.ndarray:
    """Draw the factors of many devices of two trials, [2, K]."""
    sections = [Fixed(jitter=kind, jitter_scale=scale) for scale in SCALES]
    devices = torch.arange(bench.scale_size(SAMPLES), device=bench.torch_device)
    trial = torch.arange(2, device=bench.torch_device).repeat_interleave(len(devices))
    jitter = Jitter(sections, Streams([7, 7], [0, 1], bench.torch_device))
    factors = jitter.draw_factor(trial, devices.repeat(2), round)
    assert factors is not None
    return factors.reshape(2, -1)


@state_law("jitter: law and mean", "Lee et al. 2018; mean 1", "{}", ("exponential", "lognormal"))
def _jitter(bench: Bench, kind: str) -> Iterator[Check]:
    for scale, factors in zip(SCALES, _draw_jitter(bench, kind, 3), strict=True):
        law = stats.lognorm(scale, scale=math.exp(-(scale**2) / 2.0))
        if kind == "exponential":
            law = stats.expon(1.0 - scale, scale)
        yield check_distribution(factors, law.cdf, f"scale {scale:g}")
        yield check_mean(1.0, factors, f"scale {scale:g}, mean")


@state_law("jitter: independent rounds", "Spearman's rank correlation")
def _jitter_rounds(bench: Bench) -> Iterator[Check]:
    first, second = (_draw_jitter(bench, "exponential", round)[0] for round in (0, 1))
    yield _check_ranks(first, second)


COMPUTE = "otafl.devices.compute"
