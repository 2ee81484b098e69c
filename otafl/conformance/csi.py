"""Check the laws of what devices and server believe the channel to be."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl.conformance.bench import Bench, Record
from otafl.conformance.channels import CARRIER_HZ, INTERVAL_S, SPEED_KMH, doppler_rad_s
from otafl.conformance.checks import Check, exactly, mean, stated
from otafl.core.units import db_to_linear

VARIANCES = (0.01, 0.3)
SNR_DB = 10.0
SNR = db_to_linear(SNR_DB)
ROUNDS = 5
DELAYS = (1, 4)
"""In rounds; the last one is looked at."""


def _record(bench: Bench, csi: Any, **channel: Any) -> Record:
    section = {"name": "rayleigh", "snr_db": SNR_DB} | channel
    point = {"channel": section, "csi": csi, "power": "ci"}
    return bench.uplink(20, bench.size(256), point).record(ROUNDS, 4, 1.0)


@stated("csi perfect: the estimate is the channel", "h_hat = h")
def _perfect(bench: Bench) -> Iterator[Check]:
    record = _record(bench, "perfect")
    yield exactly(0.0, float(np.abs(record.h_hat - record.h).max()), 0.0)


@functools.lru_cache(maxsize=4)
def _error(bench: Bench, variance: float) -> Record:
    return _record(bench, {"name": "error", "variance": variance})


@stated("csi error: variance", "E|h_hat - h|^2")
def _error_variance(bench: Bench) -> Iterator[Check]:
    for variance in VARIANCES:
        record = _error(bench, variance)
        off = np.abs(record.h_hat - record.h) ** 2
        yield mean(variance, off, f"v={variance:g}")


@stated("csi error: independent of the channel", "E (h_hat - h) h^* = 0")
def _error_apart(bench: Bench) -> Iterator[Check]:
    for variance in VARIANCES:
        record = _error(bench, variance)
        product = (record.h_hat - record.h) * record.h.conj()
        yield mean(0.0, product.real, f"v={variance:g}")


@stated("csi error: gain of inverted channels", "E Re(h / h_hat) = 1/(1 + v)")
def _error_gain(bench: Bench) -> Iterator[Check]:
    """Compare the mean gain with 1 / (1 + v): given h_hat, h is normal about h_hat / (1 + v). It is
    the same for every h_hat, of which those above 0.5 are taken, as the ratio's spread is then
    bounded."""
    for variance in VARIANCES:
        record = _error(bench, variance)
        strong = np.abs(record.h_hat) > 0.5
        yield mean(1.0 / (1.0 + variance), record.c[strong], f"v={variance:g}")


@stated("csi pilots: error of least squares", "Kay 1993; N0 / (L P)")
def _least_squares(bench: Bench) -> Iterator[Check]:
    """Compare the error of pilots of the budget P with their noise of one."""
    for length in (1, 4):
        record = _record(bench, {"name": "pilots", "length": length})
        off = np.abs(record.h_hat - record.h) ** 2
        yield mean(1.0 / (length * SNR), off, f"L={length}")


@stated("csi pilots: error of MMSE", "Kay 1993; e / (1 + e), e = N0/(L P)")
def _mmse(bench: Bench) -> Iterator[Check]:
    for length in (1, 4):
        csi = {"name": "pilots", "length": length, "estimator": "mmse", "power_db": -10.0}
        record = _record(bench, csi)
        error = 1.0 / (length * SNR * 0.1)
        off = np.abs(record.h_hat - record.h) ** 2
        yield mean(error / (1.0 + error), off, f"L={length}")


@stated("csi phase_feedback: mean gain", "sin(x) / x, x = pi / 2^bits")
def _feedback(bench: Bench) -> Iterator[Check]:
    """Compare the mean gain of inverted channels with sin(x) / x: the phase's error is uniform in
    plus or minus x."""
    for bits in (1, 2, 4):
        x = math.pi / 2**bits
        record = _record(bench, {"name": "phase_feedback", "bits": bits})
        yield mean(math.sin(x) / x, record.c, f"{bits} bits")


@stated("csi delay: correlation with the channel", "Jakes, J0(2 pi f_D tau)")
def _delay(bench: Bench) -> Iterator[Check]:
    """Compare 1 - E|h_hat - h|^2 / 2 at 30 km/h and rounds 1 ms apart with J0; devices and trials
    are independent."""
    for rounds in DELAYS:
        record = _record(
            bench,
            {"name": "delay", "rounds": rounds},
            speed_kmh=SPEED_KMH,
            carrier_hz=CARRIER_HZ,
            round_interval_s=INTERVAL_S,
        )
        law = float(special.j0(doppler_rad_s() * INTERVAL_S * rounds))
        last = np.abs(record.h_hat[-1] - record.h[-1]) ** 2
        yield mean(law, 1.0 - last / 2.0, f"{rounds} ms")
