"""Laws of single power policies over fading."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, Record
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_ratios,
    check_share,
    state_law,
)

COUNTS = (3, 10, 30)

AMIRI = "Amiri, Duman, Gunduz 2021"
CAO = "Cao, Zhu, Xu, Huang 2020"
SERY = "Sery and Cohen 2020"

ERROR = 0.25
"""Variance of the error of estimates."""

GBMA_MEAN = {"amplitude": 1.0, "energy": math.sqrt(math.pi) / 2.0}
"""Mean gain by `gain_target`."""

EACH_THRESHOLD = ("g_th={:g}", (0.1, 0.5))
"""Case and values of the laws over the threshold of truncated inversion."""


@functools.lru_cache(maxsize=16)
def _rayleigh(bench: Bench, devices: int, policy: str, **keys: Any) -> Record:
    """Record a policy with some keys of its section, and equal symbol powers of one."""
    point = {"channel": {"name": "rayleigh", "snr_db": 10.0}, "power": {"name": policy} | keys}
    return bench.build_rig(devices, 32, point).record(bench.scale_size(64), 16, 1.0)


@state_law("power gbma: mean gain over fading", f"{SERY}; E|h| = sqrt(pi)/2", "{}", GBMA_MEAN)
def _gbma_mean(bench: Bench, target: str) -> Iterator[Check]:
    yield check_mean(GBMA_MEAN[target], _rayleigh(bench, 10, "gbma", gain_target=target).c)


@state_law("power gbma: error over fading", f"{SERY}; FedRLR eq. 29", "K={}", COUNTS)
def _gbma_error(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare the error about the mean with (1/(K mu^2)) [1 - pi/4 + N / (K E)], over fading.

    The symbols have unit power.
    """
    law = (1.0 - math.pi / 4.0 + 0.5 / (devices * 10.0)) / devices / (math.pi / 4.0)
    yield check_mean(law, _rayleigh(bench, devices, "gbma").error)


@state_law("power tci: silent fraction", "1 - exp(-g_th / beta)", *EACH_THRESHOLD)
def _tci_silent(bench: Bench, threshold: float) -> Iterator[Check]:
    active = _rayleigh(bench, 10, "tci", threshold=threshold).active
    yield check_share(1.0 - math.exp(-threshold), int((~active).sum()), active.size)


@state_law("power tci: long-term power", "E|p|^2 m = P by E1(g_th / beta)", *EACH_THRESHOLD)
def _tci_power(bench: Bench, threshold: float) -> Iterator[Check]:
    record = _rayleigh(bench, 10, "tci", threshold=threshold)
    yield check_mean(1.0, record.power / record.budget)


@state_law("power tci: scale", "rho = P beta / E1(g_th / beta)", *EACH_THRESHOLD)
def _tci_scale(bench: Bench, threshold: float) -> Iterator[Check]:
    record = _rayleigh(bench, 10, "tci", threshold=threshold)
    yield check_exact(10.0 / special.exp1(threshold), float(record.eta[0, 0]))


@state_law("power cotaf: silent fraction", "1 - exp(-h_min^2 / (1 + v))", "v={:g}", (0.0, ERROR))
def _cotaf_silent(bench: Bench, variance: float) -> Iterator[Check]:
    """Count the devices whose estimated amplitude is below the threshold."""
    least = 0.5
    point = {
        "channel": {"name": "rayleigh", "snr_db": 10.0},
        "csi": {"name": "error", "variance": variance} if variance else "perfect",
        "power": {"name": "cotaf", "h_min": least},
    }
    active = bench.build_rig(10, 64, point).record(bench.scale_size(64), 1, 1.0).active
    law = 1.0 - math.exp(-(least**2) / (1.0 + variance))
    yield check_share(law, int((~active).sum()), active.size)


@state_law("power blind: error falls as 1/A", f"{AMIRI}, eq. 12", "A={}", (1, 4, 16, 64))
def _blind(bench: Bench, antennas: int) -> Iterator[Check]:
    """Compare the error with [(K + 1)/2 + 1/(2 P)] / (K A), unit symbols, P over sigma^2."""
    devices = 8
    channel = {"name": "rayleigh", "snr_db": 3.0, "antennas": antennas}
    rig = bench.build_rig(devices, 32, {"channel": channel, "power": "blind"})
    law = ((devices + 1) / 2.0 + 0.5 / db_to_linear(3.0)) / (devices * antennas)
    yield check_mean(law, rig.record(bench.scale_size(32), 16, 1.0).error)


@state_law("power gbma: power of gamma", "FedRLR; |p|^2 = gamma, K gamma of a factor of a product")
def _gamma(bench: Bench) -> Iterator[Check]:
    """Check the power of four of eight devices against gamma, whatever the budget."""
    point = {"power": {"name": "gbma", "gamma": 0.3}}
    rig = bench.build_rig(8, 4, point, senders=(0, 2, 3, 6))
    for weighting, law in (("mean", 0.3), ("none", 4 * 0.3)):
        report = rig.send(rig.draw_symbols(16, 0, 1.0), 0, weighting)[1]
        used = report.power[:, rig.senders].cpu().numpy()
        yield check_ratios(used, np.full(used.shape, law), case=weighting)


PLANNED = 512


@functools.lru_cache(maxsize=2)
def _average(bench: Bench) -> Record:
    channel = {"name": "rayleigh", "snr_db": 5.0, "device_budget_db": (0.0, -6.0)}
    power = {"name": "cao_average", "draws": PLANNED}
    rig = bench.build_rig(6, 24, {"channel": channel, "power": power})
    return rig.record(bench.scale_size(64), 16, 1.0)


@state_law("power cao_average: average power", f"{CAO}, budget met with equality")
def _average_budget(bench: Bench) -> Iterator[Check]:
    """Compare the mean power of each kind of device with its budget.

    The planned states are a sample too, and each trial has its own plan.
    """
    record = _average(bench)
    used = (record.power / record.budget).mean(0)
    for kind, name in enumerate(("full budget", "a quarter of it")):
        yield check_mean(1.0, used[:, kind::2].mean(1), name, bias=2.0 / PLANNED)
