"""Laws of single power policies over fading."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special, stats

from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench, Record
from otafl.laws.checks import (
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_normal_errors,
    check_ratios,
    check_share,
    state_law,
)

COUNTS = (3, 10, 30)
REALS = 64

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


@state_law("power ci: exact mean without noise", "c = 1, error N / (K^2 eta)", "K={}", COUNTS)
def _ci_exact(bench: Bench, devices: int) -> Iterator[Check]:
    """Send without noise (at 200 dB)."""
    point = {"channel": {"name": "rayleigh", "snr_db": 200.0}, "power": "ci"}
    record = bench.build_rig(devices, 8, point).record(4, REALS)
    yield check_exact(0.0, float(record.nmse.max()), 1e-12)


@state_law("power ci: reach of the weakest device", "eta / P = min |h|^2, exponential of mean 1/K")
def _ci_weakest(bench: Bench) -> Iterator[Check]:
    """Compare the receive scaling of ten devices with equal budgets and symbol powers."""
    weakest = _rayleigh(bench, 10, "ci").eta / 10.0
    yield check_distribution(weakest, stats.expon(scale=0.1).cdf)


@state_law("power gbma: mean gain over fading", f"{SERY}; E|h| = sqrt(pi)/2", "{}", GBMA_MEAN)
def _gbma_mean(bench: Bench, target: str) -> Iterator[Check]:
    yield check_mean(GBMA_MEAN[target], _rayleigh(bench, 10, "gbma", gain_target=target).c)


@state_law("power gbma: variance of the gain", f"{SERY}; 1 - pi/4", "{}", GBMA_MEAN)
def _gbma_variance(bench: Bench, target: str) -> Iterator[Check]:
    law = {"amplitude": 4.0 / math.pi - 1.0, "energy": 1.0 - math.pi / 4.0}[target]
    record = _rayleigh(bench, 10, "gbma", gain_target=target)
    yield check_mean(law, (record.c - GBMA_MEAN[target]) ** 2)


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


@functools.lru_cache(maxsize=4)
def _record_estimated(bench: Bench, threshold: float) -> Record:
    """Record truncated inversion with errors of estimates, for devices with unequal symbols."""
    channel = {"name": "rayleigh", "snr_db": 10.0}
    csi = {"name": "error", "variance": ERROR}
    power = {"name": "tci", "threshold": threshold}
    rig = bench.build_rig(8, 32, {"channel": channel, "csi": csi, "power": power})
    return rig.record(bench.scale_size(256), 16)


@state_law(
    "power tci: silent fraction by estimates", "1 - exp(-g_th / (beta (1 + v)))", *EACH_THRESHOLD
)
def _tci_estimated_silent(bench: Bench, threshold: float) -> Iterator[Check]:
    active = _record_estimated(bench, threshold).active
    law = 1.0 - math.exp(-threshold / (1.0 + ERROR))
    yield check_share(law, int((~active).sum()), active.size)


@state_law("power tci: long-term power by estimates", "E|p|^2 m = P m / max m", *EACH_THRESHOLD)
def _tci_estimated_power(bench: Bench, threshold: float) -> Iterator[Check]:
    """Compare each device's power over its budget with its symbol power over the largest."""
    record = _record_estimated(bench, threshold)
    part = record.m[0, 0] / record.m[0, 0].max()
    for device, law in enumerate(part):
        yield check_mean(
            float(law), (record.power / record.budget)[..., device], f"device {device}"
        )


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


@state_law("power cotaf: noise falls with updates", "Sery et al. 2021, eq. 8-10")
def _cotaf_noise(bench: Bench) -> Iterator[Check]:
    """Compare the noise with N / (K_a^2 alpha h_min^2), alpha = P / m.

    It is a quarter for updates of half the size.
    """
    rig = bench.build_rig(
        10, 16, {"channel": {"name": "rayleigh", "snr_db": 10.0}, "power": "cotaf"}
    )
    for size in (1.0, 0.5, 0.1):
        record = rig.record(bench.scale_size(32), REALS, size**2)
        law = 0.5 / (record.active.sum(-1) ** 2 * 10.0 / size**2 * 0.1**2)
        yield check_normal_errors(law, record, f"updates x {size:g}")


@state_law("power blind: error falls as 1/A", f"{AMIRI}, eq. 12", "A={}", (1, 4, 16, 64))
def _blind(bench: Bench, antennas: int) -> Iterator[Check]:
    """Compare the error with [(K + 1)/2 + 1/(2 P)] / (K A), unit symbols, P over sigma^2."""
    devices = 8
    channel = {"name": "rayleigh", "snr_db": 3.0, "antennas": antennas}
    rig = bench.build_rig(devices, 32, {"channel": channel, "power": "blind"})
    law = ((devices + 1) / 2.0 + 0.5 / db_to_linear(3.0)) / (devices * antennas)
    yield check_mean(law, rig.record(bench.scale_size(32), 16, 1.0).error)


@state_law("power blind: scaling by the large-scale gain", f"{AMIRI}, eq. 12")
def _blind_gain(bench: Bench) -> Iterator[Check]:
    """Compare sqrt(eta) in a cell, where gains differ, with A beta sqrt(E) / |sum_k h_k|.

    The norm is over the antennas, beta is the mean gain, and E the least budget over symbol power
    of the transmitters.
    """
    antennas, senders = 4, (0, 2, 3, 6)
    channel = {"name": "umi", "subcarrier_groups": 1, "antennas": antennas}
    point = {"channel": channel, "power": "blind"}
    rig = bench.build_rig(8, 4, point, senders=senders)
    record = rig.record(4, 16)
    states = [rig.link.channel.get_state(round) for round in range(4)]
    h = np.stack([state.h[..., 0, 0].cpu().numpy() for state in states])[:, :, list(senders)]
    total = np.linalg.norm((np.sqrt(record.gain)[..., None] * h).sum(2), axis=-1)
    energy = (record.budget / record.m).min(-1)
    root = antennas * record.gain.mean(-1) * np.sqrt(energy) / total
    yield check_ratios(record.eta, root**2)


@state_law("power gbma: budget of the mean device", "FedRLR; mean of |p|^2 m / P = 1")
def _mean_device(bench: Bench) -> Iterator[Check]:
    """Average over the transmitters, which are fewer than the devices."""
    channel = {"name": "rayleigh", "snr_db": 10.0, "device_budget_db": (0.0, -3.0, 2.0)}
    point = {"channel": channel, "power": {"name": "gbma", "reference": "mean"}}
    record = bench.build_rig(8, 4, point, senders=(0, 2, 3, 6)).record(4, 16)
    used = np.abs(record.p) ** 2 * record.m / record.budget
    yield check_ratios(used.mean(-1), np.ones(used.shape[:-1]))


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
MOST_POWER = PLANNED / 16.0
"""Largest power over the budget: that of a state that is 16 times among the planned ones."""


@functools.lru_cache(maxsize=2)
def _average(bench: Bench) -> Record:
    channel = {"name": "rayleigh", "snr_db": 5.0, "device_budget_db": (0.0, -6.0)}
    power = {"name": "cao_average", "draws": PLANNED}
    rig = bench.build_rig(6, 24, {"channel": channel, "power": power})
    return rig.record(bench.scale_size(64), 16, 1.0)


def _multiplier(record: Record) -> np.ndarray:
    """Solve sqrt(eta) |h| / (g + eta lambda) = |p| for lambda_k [R, S, K], nan if silent."""
    size, eta = np.abs(record.h), record.eta[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (np.sqrt(eta) * size / np.abs(record.p) - size**2) / eta
    return np.where(record.active, found, np.nan)


def _find_capped(record: Record) -> np.ndarray:
    """Return the mask [R, S] of rare states in which a device is at its largest power.

    The closed form does not hold there.
    """
    held: np.ndarray = (record.power / record.budget > 0.999 * MOST_POWER).any(-1)
    return held


@state_law(
    "power cao_average: regularised inversion", f"{CAO}, |p| = sqrt(eta)|h| / (g + eta lambda)"
)
def _average_form(bench: Bench) -> Iterator[Check]:
    """Check that one multiplier per device explains its transmit scalars in all states."""
    record = _average(bench)
    found = np.where(_find_capped(record)[..., None], np.nan, _multiplier(record))
    spread = (np.nanmax(found, 0) - np.nanmin(found, 0)) / np.nanmax(found, 0)
    yield check_exact(0.0, float(spread.max()), 1e-5)


@state_law("power cao_average: receive scaling", f"{CAO}, sum lambda g eta^2/(g+eta lambda)^2 = N")
def _average_root(bench: Bench) -> Iterator[Check]:
    record = _average(bench)
    gain, eta = np.abs(record.h) ** 2, record.eta[..., None]
    multiplier = _multiplier(record)
    total = (multiplier * gain * eta**2 / (gain + eta * multiplier) ** 2).sum(-1)
    total = total[record.active.all(-1) & ~_find_capped(record)]
    yield check_exact(0.5, float(total[np.abs(total - 0.5).argmax()]), 1e-5)


@state_law("power cao_average: average power", f"{CAO}, budget met with equality")
def _average_budget(bench: Bench) -> Iterator[Check]:
    """Compare the mean power of each kind of device with its budget.

    The planned states are a sample too, and each trial has its own plan.
    """
    record = _average(bench)
    used = (record.power / record.budget).mean(0)
    for kind, name in enumerate(("full budget", "a quarter of it")):
        yield check_mean(1.0, used[:, kind::2].mean(1), name, bias=2.0 / PLANNED)
