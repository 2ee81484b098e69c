"""Laws of uplinks without phases: votes by energy, sums of energies, and counts by type.

With type-based multiple access each level has a channel use, in which the server counts devices.
Values are on the levels, so that only noise disturbs them. Devices invert a channel without fading
at the budget P, so that N / eta = N / (M P).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

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
RANGE = 2.0


@state_law("transport type_based: error", f"{TYPES}; (N/eta) sum v^2 / K^2", "M={}", (2, 5, 16))
def _error(bench: Bench, levels: int) -> Iterator[Check]:
    """Compare the error with the counts as they are; devices are on each level in turn."""
    devices, num_coordinates, snr_db = 8, 512, 3.0
    transport = {"name": "type_based", "range": RANGE, "levels": levels}
    channel = {"name": "awgn", "snr_db": snr_db, "bandwidth_hz": 2e6}
    point = {"channel": channel, "power": "ci", "transport": transport}
    rig = bench.build_rig(devices, 16, point)
    place = (torch.arange(devices)[:, None] + torch.arange(num_coordinates)) % levels
    rows = RANGE * (2.0 * place / (levels - 1) - 1.0)
    x = rows.repeat(rig.num_trials, 1).to(rig.cohort.weight)
    exact = x.view(rig.num_trials, devices, -1).mean(1)
    off = np.stack([(rig.send(x, round)[0] - exact).cpu().numpy() for round in range(4)])
    v = np.linspace(-RANGE, RANGE, levels)
    law = N / (levels * db_to_linear(snr_db)) * (v**2).sum() / devices**2
    yield check_mean_square(law, off**2 / law, off.size)
