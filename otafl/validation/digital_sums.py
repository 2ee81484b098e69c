"""Laws of uplinks that add integers, of which only the rounding of noisy sums leaves an error.

Devices have every level equally often, so that the mean power of their symbols is that of uniform
integers. They invert a channel without fading at the budget P, which is the signal-to-noise ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from otafl.core.units import db_to_linear
from otafl.validation import sheet
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, check_mean, state_law

DEVICES = 16
RANGE = 1.0
SUMS = "sum_d w_d^2 V(s_d), V(s) = sum (2n - 1) 2 Q((n - 1/2)/s)"

LATTICES = (((4, 4), 5.0), ((4, 4), 10.0), ((8, 8), 15.0), ((16, 16), 20.0))
SLICES: tuple[tuple[int, float, dict[str, Any]], ...] = (
    (4, 5.0, {}),
    (8, 7.0, {}),
    (4, 8.0, {"quadrature": True}),
    (4, 5.0, {"bit_power": 2.0}),
)


@state_law(
    "transport sumcomp: error", f"Razavikia et al. 2023; {SUMS}", "q={0[0]}, {0[1]:g} dB", LATTICES
)
def _lattice(bench: Bench, case: tuple[tuple[int, int], float]) -> Iterator[Check]:
    """Compare the squared error of the sum of integers."""
    radices, snr_db = case
    spacing = math.sqrt(sum(q**2 - 1 for q in radices) / 12.0 / db_to_linear(snr_db) / 2.0)
    transport = {"name": "sumcomp", "radices": list(radices)}
    ratio = _measure_errors(bench, transport, snr_db, radices[0] * radices[1])
    yield check_mean((1 + radices[0] ** 2) * sheet.rounded_variance(spacing), ratio)


@state_law(
    "transport bit_slices: error",
    f"Liu et al. 2024; {SUMS}",
    "B={0[0]}, {0[1]:g} dB {0[2]}",
    SLICES,
)
def _slices(bench: Bench, case: tuple[int, float, dict[str, Any]]) -> Iterator[Check]:
    """Compare the squared error of the sum of integers."""
    bits, snr_db, keys = case
    powers = np.array([keys.get("bit_power", 1.0) ** b for b in range(bits)])
    bits_per_use = 2 if "quadrature" in keys else 1
    noise = 0.5 * bits_per_use / db_to_linear(snr_db) / (powers / powers.mean())
    law = sum(4.0**b * sheet.rounded_variance(math.sqrt(n) / 2.0) for b, n in enumerate(noise))
    transport = {"name": "bit_slices", "bits": bits} | keys
    yield check_mean(law, _measure_errors(bench, transport, snr_db, 2**bits))


def _measure_errors(
    bench: Bench, transport: dict[str, Any], snr_db: float, levels: int
) -> np.ndarray:
    """Measure squared errors of the sum of the devices' integers."""
    channel = {"name": "awgn", "snr_db": snr_db}
    sections = {"channel": channel, "power": "ci", "transport": transport | {"range": RANGE}}
    rig = bench.build_rig(DEVICES, 16, sections)
    num_coordinates = levels * -(-512 // levels)
    # 37 is odd, so that the integers of the devices differ and their sum is far from its ends
    place = (37 * torch.arange(DEVICES)[:, None] + torch.arange(num_coordinates)) % levels
    rows = RANGE * (2.0 * place / (levels - 1) - 1.0)
    x = rows.repeat(rig.num_trials, 1).to(rig.cohort.weight)
    exact = x.view(rig.num_trials, DEVICES, -1).sum(1)
    off = [rig.send(x, round, "none")[0] - exact for round in range(bench.scale_size(8))]
    return (torch.stack(off) * (levels - 1) / (2.0 * RANGE)).square().cpu().numpy()
