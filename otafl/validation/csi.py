"""Laws of channel state information: the channel estimates of devices and server."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, Record
from otafl.validation.channels import MOVING, jakes
from otafl.validation.checks import Check, check_distribution, check_mean, state_law

VARIANCES = (0.01, 0.3)
LENGTHS = (1, 4, 8)
BUDGETS_DB = (0.0, -8.0, 4.0)
"""Power budgets of three devices."""

SNR_DB = 10.0
SNR = db_to_linear(SNR_DB)
ROUNDS = 5
DELAYS = (1, 4)
"""Delays in rounds."""


def _record(bench: Bench, csi: Any, **channel: Any) -> Record:
    section = {"name": "rayleigh", "snr_db": SNR_DB} | channel
    point = {"channel": section, "csi": csi, "power": "ci"}
    return bench.build_rig(20, bench.scale_size(256), point).record(ROUNDS, 4, 1.0)


def _compute_squared_errors(record: Record) -> np.ndarray:
    """Compute the squared errors of the estimates, [R, S, K]."""
    off: np.ndarray = np.abs(record.h_hat - record.h) ** 2
    return off


@functools.lru_cache(maxsize=4)
def _error(bench: Bench, variance: float) -> Record:
    return _record(bench, {"name": "error", "variance": variance})


@state_law("csi error: variance", "E|h_hat - h|^2", "v={:g}", VARIANCES)
def _error_variance(bench: Bench, variance: float) -> Iterator[Check]:
    yield check_mean(variance, _compute_squared_errors(_error(bench, variance)))


def _normal(e: np.ndarray) -> Iterator[Check]:
    """Check complex normal errors of unit variance [R, S, K], which are independent."""
    yield check_distribution(np.abs(e) ** 2, stats.expon.cdf, "power")
    yield check_distribution(np.angle(e) / (2.0 * math.pi) + 0.5, stats.uniform.cdf, "phase")
    pairs = {"rounds": (e[1:], e[:-1]), "trials": (e[:, 1:], e[:, :-1])}
    pairs["devices"] = (e[:, :, 1:], e[:, :, :-1])
    for case, (one, other) in pairs.items():
        yield check_mean(0.0, (one * other.conj()).real, case)


@state_law("csi pilots: error of least squares", "Kay 1993; N0 / (L P)", "L={}", LENGTHS)
def _least_squares(bench: Bench, length: int) -> Iterator[Check]:
    """Compare the error of pilots with unequal budgets P with a complex normal one.

    Its variance is 1/(L P). It depends neither on the channel nor on other devices or rounds.
    """
    csi = {"name": "pilots", "length": length}
    record = _record(bench, csi, device_budget_db=BUDGETS_DB)
    e = (record.h_hat - record.h) * np.sqrt(length * record.budget)
    yield check_mean(1.0 / (length * SNR), _compute_squared_errors(record) * record.budget / SNR)
    yield from _normal(e)
    yield check_mean(0.0, (e * record.h.conj()).real, "product with the channel")


@state_law("csi pilots: error of MMSE", "Kay 1993; e / (1 + e), e = N0/(L P)", "L={}", LENGTHS)
def _mmse(bench: Bench, length: int) -> Iterator[Check]:
    """Compare the error, which is orthogonal to the estimate."""
    csi = {"name": "pilots", "length": length, "estimator": "mmse", "power_db": -10.0}
    error = 1.0 / (length * SNR * 0.1)
    record = _record(bench, csi)
    yield check_mean(error / (1.0 + error), _compute_squared_errors(record))
    product = (record.h_hat - record.h) * record.h_hat.conj()
    yield check_mean(0.0, product.real, "orthogonal to the estimate")
    yield check_mean(0.0, product.imag, "orthogonal to the estimate, imaginary")


@state_law("csi phase_feedback: mean gain", "sin(x) / x, x = pi / 2^bits", "{} bits", (1, 2, 4))
def _feedback(bench: Bench, bits: int) -> Iterator[Check]:
    """Compare the mean gain of inverted channels with sin(x) / x.

    The phase error is uniform in plus or minus x.
    """
    x = math.pi / 2**bits
    record = _record(bench, {"name": "phase_feedback", "bits": bits})
    yield check_mean(math.sin(x) / x, record.c, "mean gain")
    error = np.angle(record.h * record.h_hat.conj())
    yield check_distribution(error, stats.uniform(-x, 2.0 * x).cdf, "phase error")


@state_law("csi delay: correlation with the channel", "Jakes, J0(2 pi f_D tau)", "{} ms", DELAYS)
def _delay(bench: Bench, rounds: int) -> Iterator[Check]:
    """Compare 1 - E|h_hat - h|^2 / 2 with J0, at 30 km/h and rounds 1 ms apart.

    Devices and trials are independent. In the first round, estimates are of times before it.
    """
    record = _record(bench, {"name": "delay", "rounds": rounds}, **MOVING)
    for case, round in (("first round", 0), ("last round", -1)):
        yield check_mean(jakes(rounds), 1.0 - _compute_squared_errors(record)[round] / 2.0, case)
        product = record.h[round] * record.h_hat[round].conj()
        yield check_mean(0.0, product.imag, f"{case}, imaginary")
