"""Laws of uplinks without phases: votes by energy, sums of energies, and counts by type.

With type-based multiple access each level has a channel use, in which the server counts devices.
Values are on the levels, so that only noise disturbs them. Devices invert a channel without fading
at the budget P, so that N / eta = N / (M P).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.units import db_to_linear
from otafl.validation import sheet
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import Check, check_mean, check_mean_square, check_share, state_law

SNR_DB = 5.0
P = db_to_linear(SNR_DB)
X = (2.0, 1.0, 0.5, -1.0, -0.3)
"""Values of five devices: three votes for +, two for -."""

SAHIN = "Sahin, Everette, Hoque 2021; I_x(A, A)"
CHEN = "Chen, Bozorgasl 2026"
REED = "reed"
COORDINATES = 400
INDEPENDENT = {"block_symbols": 2}
"""Fading that changes after the two channel uses of each coordinate."""

FSK = {"name": "fsk_majority_vote", "step": 1.0}


def _build_rig(bench: Bench, transport: Any, trials: int, channel: Any, **sections: Any) -> Rig:
    section = {"name": "rayleigh", "snr_db": SNR_DB} | channel
    return bench.build_rig(len(X), trials, {"channel": section, "transport": transport} | sections)


def _draw_estimates(bench: Bench, transport: Any, antennas: int) -> np.ndarray:
    """Draw 32,000 independent estimates in 80 trials."""
    rig = _build_rig(bench, transport, bench.scale_size(80), INDEPENDENT | {"antennas": antennas})
    return _send_round(rig, COORDINATES)


def _send_round(rig: Rig, num_coordinates: int) -> np.ndarray:
    """Return the estimates [S, P] of a round in which each device repeats its number."""
    x = (
        torch.tensor(X)
        .to(rig.cohort.weight)
        .repeat(rig.num_trials)[:, None]
        .expand(-1, num_coordinates)
    )
    return rig.send(x.contiguous(), 0)[0].cpu().numpy()


@state_law("transport fsk_majority_vote: wrong votes", SAHIN, "A={}", (1, 4))
def _wrong_votes(bench: Bench, antennas: int) -> Iterator[Check]:
    """Count wrong votes of three against two under Rayleigh fading."""
    votes = _draw_estimates(bench, FSK, antennas)
    law = sheet.wrong_vote_probability(2.0 * P * 3 + 1.0, 2.0 * P * 2 + 1.0, antennas)
    yield check_share(law, int((votes < 0).sum()), votes.size)


@state_law("transport reed: unbiased", CHEN, "A={}", (1, 4))
def _check_mean(bench: Bench, antennas: int) -> Iterator[Check]:
    """Average estimates of the mean under Rayleigh fading."""
    yield check_mean(sum(X) / len(X), _draw_estimates(bench, REED, antennas))


@state_law("transport reed: variance", CHEN, "A={}", (1, 4))
def _variance(bench: Bench, antennas: int) -> Iterator[Check]:
    """Compare squared errors with the variance under Rayleigh fading."""
    law = sheet.energy_variance(np.array(X), 2.0 * P / max(np.abs(X)), antennas) / len(X) ** 2
    estimates = _draw_estimates(bench, REED, antennas)
    yield check_mean(1.0, (estimates - sum(X) / len(X)) ** 2 / law)


TYPES = "Mergen and Tong 2006"

N = 0.5
REALS = 512
TRIALS = 16
RANGE = 2.0
BANDWIDTH_HZ = 2e6


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
