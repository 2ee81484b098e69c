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
from otafl.uplink.type_based.unsourced import estimate_counts
from otafl.validation import sheet
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, check_mean, check_share, state_law

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


@state_law(
    "transport unsourced: detection",
    "int phi(x - 1/s) Phi(x)^(M - 1) dx",
    "M={0[0]}, s={0[1]}",
    ((8, 0.5), (64, 0.3)),
)
def _detection(bench: Bench, case: tuple[int, float]) -> Iterator[Check]:
    """Count the blocks of one device whose codeword is found among orthogonal sequences."""
    words, deviation = case
    blocks = bench.scale_size(1 << 14)
    rng = np.random.default_rng(words)
    sent = rng.integers(words, size=blocks)
    y = np.eye(words)[sent] + deviation * rng.standard_normal((blocks, words))
    one = torch.ones(1, blocks, dtype=torch.float64)
    given = torch.from_numpy(y)[None], torch.eye(words, dtype=torch.float64), one
    shares = torch.full((1, words), 1.0 / words, dtype=torch.float64)
    found = estimate_counts(*given, shares, deviation * one, 1)[0].argmax(1).numpy()
    law = sheet.detection_probability(words, deviation)
    yield check_share(law, int((found == sent).sum()), blocks)


@state_law(
    "transport blind_unsourced: hardening",
    "Qiao et al. 2026; (R_11^2 + R_22^2 - 2 |R_12|^2) / (A K^2 (1 - |a_1^H a_2|^2)^2)",
    "A={}",
    (64, 256),
)
def _hardening(bench: Bench, antennas: int) -> Iterator[Check]:
    """Compare the variance of the difference of two counts, half of the devices each.

    R = G diag(n) G + N_0 G, with the Gram matrix G of the two sequences.
    """
    length, blocks, snr_db = 8, 256, 0.0
    transport = {"name": "blind_unsourced", "block": 1, "bits": 1, "length": length}
    channel = {"antennas": antennas, "block_symbols": length, "snr_db": snr_db}
    rig = bench.build_rig(
        DEVICES, bench.scale_size(8), {"channel": channel, "transport": transport}
    )
    scheme: Any = rig.link.transport
    real, imag = scheme.sequences.cpu().numpy().reshape(2, length, 2)
    gram = (real + 1j * imag).conj().T @ (real + 1j * imag)
    noise = 1.0 / (length * db_to_linear(snr_db))
    r = 0.5 * DEVICES * gram @ gram + noise * gram
    spread = abs(r[0, 0]) ** 2 + abs(r[1, 1]) ** 2 - 2.0 * abs(r[0, 1]) ** 2
    law = spread / antennas / DEVICES**2 / (1.0 - abs(gram[0, 1]) ** 2) ** 2
    low, high = scheme.normal_codewords[0, :, 0].cpu().numpy()
    half = torch.ones(DEVICES, blocks)
    half[::2] = -1.0
    mean = rig.send(half.repeat(rig.num_trials, 1).to(rig.cohort.weight), 0)[0].cpu().numpy()
    yield check_mean(law, ((mean - 0.5 * (low + high)) / (0.5 * (low - high))) ** 2)
