"""Laws of type-based multiple access: a channel use per level, in which the server counts devices.

Values are on the levels, so that only noise disturbs them, except for the law of rounding. Devices
invert a channel without fading at the budget P, so that N / eta = N / (M P).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from otafl.core.units import db_to_linear
from otafl.laws.bench import CONFORMANCE, Bench, Rig
from otafl.laws.checks import (
    Check,
    check_exact,
    check_mean,
    check_mean_not_above,
    check_mean_square,
    check_normal,
    check_share,
    state_law,
)

TYPES = "Mergen and Tong 2006"
LATTICE = "Martinez-Gost et al. 2026"

N = 0.5
REALS = 512
TRIALS = 16
RANGE = 2.0
BANDWIDTH_HZ = 2e6
SIMULATED = 40_000

EACH_SNR = ("{:g} dB", (-3.0, 0.0, 3.0))


def _rig(bench: Bench, devices: int, snr_db: float, **keys: Any) -> Rig:
    channel = {"name": "awgn", "snr_db": snr_db, "bandwidth_hz": BANDWIDTH_HZ}
    transport = {"name": "type_based", "range": RANGE} | keys
    return bench.build_rig(
        devices, TRIALS, {"channel": channel, "power": "ci", "transport": transport}
    )


def _errors(rig: Rig, rows: Tensor, rounds: int) -> np.ndarray:
    """Return the errors [R, S, P] of the means of rows [n, P] in several rounds."""
    x = rows.repeat(rig.num_trials, 1).to(rig.cohort.weight)
    exact = x.view(rig.num_trials, rig.num_devices, -1).mean(1)
    found = [(rig.send(x, round)[0] - exact).cpu().numpy() for round in range(rounds)]
    return np.stack(found)


def _deviation(levels: int, snr_db: float) -> float:
    """Compute the standard deviation of a count."""
    return math.sqrt(N / (levels * db_to_linear(snr_db)))


def _on_levels(devices: int, levels: int) -> Tensor:
    """Return rows [n, P] on the levels, with the devices on each level in turn."""
    place = (torch.arange(devices)[:, None] + torch.arange(REALS)) % levels
    return RANGE * (2.0 * place / (levels - 1) - 1.0)


@state_law("transport type_based: error", f"{TYPES}; (N/eta) sum v^2 / K^2", "M={}", (2, 5, 16))
def _error(bench: Bench, levels: int) -> Iterator[Check]:
    """Compare the error with the counts as they are."""
    devices, snr_db = 8, 3.0
    v = np.linspace(-RANGE, RANGE, levels)
    law = _deviation(levels, snr_db) ** 2 * (v**2).sum() / devices**2
    off = _errors(_rig(bench, devices, snr_db, levels=levels), _on_levels(devices, levels), 4)
    yield check_mean_square(law, off**2 / law, off.size)


@state_law("transport type_based: rounded counts", "2 Q(1/(2 sqrt(N/eta))) wrong", *EACH_SNR)
def _check_rounding(bench: Bench, snr_db: float) -> Iterator[Check]:
    """Count correct means of two levels with five devices each.

    The mean is correct if both counts are, or if both have the same error.
    """
    deviation = _deviation(2, snr_db)
    wrong = 2.0 * stats.norm.sf(0.5 / deviation)
    by = np.arange(1, 6)
    edges = stats.norm.sf((by - 0.5) / deviation) - stats.norm.sf((by + 0.5) / deviation)
    law = (1.0 - wrong) ** 2 + 2.0 * (edges**2).sum()
    rig = _rig(bench, 10, snr_db, levels=2, project="round")
    off = _errors(rig, _on_levels(10, 2), bench.scale_size(16))
    yield check_share(law, int((np.abs(off) < 1e-6).sum()), off.size)


@state_law("transport type_based: lattice", f"{LATTICE}; nearest counts of sum K", *EACH_SNR)
def _lattice(bench: Bench, snr_db: float) -> Iterator[Check]:
    """Compare the mean squared error with that of a simulation, and with that of rounded counts.

    The simulation assigns units one by one. Rounded counts have a larger error under the same
    noise. (With more noise, the bounds 0 .. K help rounded counts more than the sum helps the
    lattice.)
    """
    devices, levels = 6, 4
    rows = _on_levels(devices, levels)
    squared = {}
    for project in ("round", "lattice"):
        rig = _rig(bench, devices, snr_db, levels=levels, project=project)
        squared[project] = _errors(rig, rows, bench.scale_size(16)) ** 2
    simulated = _simulate_counts(rows[:, :levels].numpy(), levels, snr_db)
    found = squared["lattice"]
    spread = simulated.var() / simulated.size + found.var() / found.size
    yield check_normal(
        float(simulated.mean()), float(found.mean()), math.sqrt(spread), "simulation"
    )
    if snr_db >= 0:
        yield check_mean_not_above(squared["round"], found, "not above rounding")


def _simulate_counts(rows: np.ndarray, levels: int, snr_db: float) -> np.ndarray:
    """Return squared errors of the nearest types, for the columns of rows [n, C] in turn."""
    devices, columns = rows.shape
    v = np.linspace(-RANGE, RANGE, levels)
    counts = (np.abs(rows[:, :, None] - v) < 1e-6).sum(0)  # [C, M]
    counts = np.tile(counts, (SIMULATED // columns, 1))
    random = np.random.default_rng(0)
    y = counts + _deviation(levels, snr_db) * random.standard_normal(counts.shape)
    near = np.zeros_like(y)
    for _ in range(devices):  # assign the next unit at the least cost
        best = (2.0 * (near - y) + 1.0).argmin(1)
        near[np.arange(len(y)), best] += 1.0
    squared: np.ndarray = ((near - counts) @ v / devices) ** 2
    return squared


@state_law("transport type_based: rounding to levels", "unbiased; f (1 - f) step^2 / K")
def _rounding(bench: Bench) -> Iterator[Check]:
    """Compare errors of values between the levels, which are rounded up or down, without noise."""
    devices, levels = 8, 5
    rig = _rig(bench, devices, 200.0, levels=levels)
    draw = rig.streams.draw_uniform(CONFORMANCE / "values", 0, (devices, REALS))[0].cpu()
    rows = RANGE * (2.0 * draw - 1.0)
    step = 2.0 * RANGE / (levels - 1)
    part = ((rows.numpy() + RANGE) / step) % 1.0
    off = _errors(rig, rows, bench.scale_size(16))
    law = (part * (1.0 - part)).mean() * step**2 / devices
    yield check_mean(0.0, off, "mean")
    yield check_mean(law, (off**2).mean(2), "variance")


@state_law("transport type_based: channel uses and power", "M a real, one of them at M P")
def _uses(bench: Bench) -> Iterator[Check]:
    """Check channel uses and power at full power, 0.1 W, with a given range or a sent one."""
    devices, levels = 6, 5
    for wanted, side in ((RANGE, 0.0), ("payload", float(devices))):
        rig = _rig(bench, devices, 10.0, levels=levels, range=wanted)
        report = rig.send(rig.draw_symbols(REALS, 0), 0)[1]
        case = f"range {wanted}"
        yield check_exact(levels * REALS, float(report.symbols.mean()), case=f"{case}, uses")
        airtime_s = levels * REALS / BANDWIDTH_HZ
        yield check_exact(airtime_s, float(report.airtime_s.mean()), case=f"{case}, airtime")
        yield check_exact(10.0, float(report.power.max()), case=f"{case}, power of a use")
        yield check_exact(0.1 * airtime_s, float(report.energy_j.max()), case=f"{case}, joules")
        pulse = report.saved_tensors["p/0"].abs().square().max()
        yield check_exact(10.0 * levels, float(pulse), case=f"{case}, power of the pulse")
        yield check_exact(side, float(report.side_symbols.mean()), case=f"{case}, side information")


TYPES = "otafl.uplink.type_based.type_based"
