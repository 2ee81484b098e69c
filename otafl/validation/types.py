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
from torch import Tensor

from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import (
    Check,
    check_mean_square,
    state_law,
)

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
