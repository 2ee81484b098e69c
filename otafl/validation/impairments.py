"""Laws of the impairments of an over-the-air uplink beside noise and fading.

There is no fading. Channel inversion then has a gain of one, and the remaining error is that of the
impairment.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats

from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, BenchRecord, Rig
from otafl.validation.checks import Check, check_mean, check_normal_errors, state_law

NOISELESS_DB = 200.0
N = 0.5


SHAO = "Shao, Gunduz, Liew 2021"


def _build_rig(
    bench: Bench, devices: int, trials: int, snr_db: float, power: str = "ci", **impairments: Any
) -> Rig:
    point = {
        "channel": {"name": "awgn", "snr_db": snr_db},
        "power": power,
        "impairments": impairments,
    }
    return bench.build_rig(devices, trials, point)


PHASES = (0.2, math.pi / 4.0, 1.5)


@state_law("impairment residual phase: mean gain", "sin(phi_m) / phi_m", "phi_m={:.3g}", PHASES)
def _phase_mean(bench: Bench, most: float) -> Iterator[Check]:
    rig = _build_rig(bench, 10, 32, 10.0, residual_phase_rad=most)
    yield check_mean(math.sin(most) / most, rig.record(bench.scale_size(64), 16, 1.0).c)


@state_law("impairment carrier offset: mean gain", "sin(2 pi E i) / (2 pi E i)")
def _carrier(bench: Bench) -> Iterator[Check]:
    """Compare the gain of symbol i with the mean of cos(2 pi e i).

    The offsets e are uniform in plus or minus the largest.
    """
    most = 0.01
    rig = _build_rig(bench, 4, 64, NOISELESS_DB, carrier_offset=most)
    ones = torch.ones(rig.num_trials * rig.num_devices, 61).to(rig.cohort.weight)
    rounds = range(bench.scale_size(64))
    estimates = np.stack([rig.send(ones, round)[0].cpu().numpy() for round in rounds])
    for index in (0, 5, 20, 60):
        turn = 2.0 * math.pi * most * index
        law = math.sin(turn) / turn if index else 1.0
        yield check_mean(law, estimates[:, :, index], f"symbol {index}", bias=1e-9)


DELAYS = (0.3, 0.9)


@functools.lru_cache(maxsize=16)
def _send_late(bench: Bench, most: float) -> BenchRecord:
    """Record two devices, whose difference of delays is triangular."""
    rig = _build_rig(bench, 2, 64, NOISELESS_DB, timing_offset=most)
    return rig.record(bench.scale_size(32), 64, 1.0)


@state_law("impairment timing: matched filter's error", f"{SHAO}; E D^2 / 2", "T={:g}", DELAYS)
def _matched_filter(bench: Bench, most: float) -> Iterator[Check]:
    """Compare the error of two devices D apart with D^2 / 2, E D^2 = T^2 / 6.

    The first symbol has no symbol before it.
    """
    law = most**2 / 12.0 * (1.0 - 1.0 / 128.0)
    yield check_mean(law, _send_late(bench, most).error)


CLIPS_DB = (0.0, 3.0, 6.0)
CLIPPED = "2 [(1 + a^2) Q(a) - a phi(a)]"


@functools.lru_cache(maxsize=4)
def _record_clipped(bench: Bench, clip_db: float) -> tuple[np.ndarray, np.ndarray]:
    """Return symbols and estimates of one device, with normal symbols at full power."""
    rig = _build_rig(bench, 1, 1, NOISELESS_DB, clip_db=clip_db)
    x = rig.draw_symbols(bench.scale_size(400_000), 0, 1.0)
    estimate, _ = rig.send(x, 0)
    return x.cpu().numpy().ravel(), estimate.cpu().numpy().ravel()


@state_law("impairment clipping: error of normal symbols", CLIPPED, "{:g} dB", CLIPS_DB)
def _clip_error(bench: Bench, clip_db: float) -> Iterator[Check]:
    """Compare E (|x| - a)_+^2 of a normal symbol with 2 [(1 + a^2) Q(a) - a phi(a)]."""
    x, estimate = _record_clipped(bench, clip_db)
    a = 10.0 ** (clip_db / 20.0)
    law = 2.0 * ((1.0 + a**2) * stats.norm.sf(a) - a * stats.norm.pdf(a))
    yield check_mean(law, (estimate - x) ** 2)


@state_law("impairment ADC: quantisation noise", "step^2 / 12", "{} bits", (4, 6, 8))
def _converter(bench: Bench, bits: int) -> Iterator[Check]:
    """Compare the error with a uniform one over a step.

    At a full scale of five root mean squares, nothing overloads.
    """
    rig = _build_rig(bench, 1, 1, NOISELESS_DB, adc_bits=bits, adc_range=5.0)
    x = rig.draw_symbols(bench.scale_size(200_000), 0, 1.0)
    step = 10.0 / 2**bits
    yield check_mean(step**2 / 12.0, (rig.send(x, 0)[0] - x).cpu().numpy() ** 2)


@functools.lru_cache(maxsize=4)
def _record_interfered(bench: Bench, power: str) -> BenchRecord:
    """Record two interferers of 6 dB each, with independent Rayleigh fading."""
    rig = _build_rig(bench, 5, 64, 10.0, power, interference_db=6.0, interferers=2)
    return rig.record(bench.scale_size(64), 32, 1.0)


@state_law("impairment interference: error given its fading", "noise / (K^2 eta)")
def _interference_error(bench: Bench) -> Iterator[Check]:
    """Compare squared errors with noise / (K^2 eta), given the interferers' fading."""
    record = _record_interfered(bench, "ci")
    yield check_normal_errors(record.noise / (25.0 * record.eta), record)


TAILS_DB, TAIL_SCALE = 10.0, math.sqrt(0.5 * N * db_to_linear(10.0))


@functools.lru_cache(maxsize=4)
def _tails(bench: Bench, index: float, num_coordinates: int) -> tuple[np.ndarray, float]:
    """Return errors [R] of received reals over the noise's deviation, and full power's eta."""
    tails = {"interference": "alpha_stable", "interference_db": TAILS_DB, "tail_index": index}
    rig = _build_rig(bench, 2, 1, 10.0, "full", **tails)
    x = rig.draw_symbols(num_coordinates, 0, 1.0)
    estimate, report = rig.send(x, 0)
    eta, gain = report.saved_tensors["eta/0"].item(), report.saved_tensors["c/0"][0, 0]
    arrived = (gain[:, None] * x).mean(0)
    return (2.0 * math.sqrt(eta) * (estimate[0] - arrived)).cpu().numpy(), eta


@state_law(
    "impairment heavy-tailed interference: characteristic function",
    "Yang et al. 2022; exp(-s^a |t|^a - N t^2 / 2)",
    "alpha={:g}",
    (1.2, 1.6, 2.0),
)
def _characteristic(bench: Bench, index: float) -> Iterator[Check]:
    """Compare the mean of cos(t r) at ten points t, r a received real's noise and interference.

    The distribution is symmetric, so that sin(t r) has the mean 0.
    """
    received, _ = _tails(bench, index, bench.scale_size(200_000))
    for t in np.arange(1, 11) * 0.25 / TAIL_SCALE:
        law = math.exp(-((TAIL_SCALE * t) ** index) - N * t**2 / 2.0)
        yield check_mean(law, np.cos(t * received), f"t={t * TAIL_SCALE:g}/s")
    yield check_mean(0.0, np.sin(received / TAIL_SCALE), "odd part")
