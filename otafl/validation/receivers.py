"""Laws of channel estimates, and of receivers that combine antennas and scale the signal."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, BenchRecord, Rig
from otafl.validation.channels import MOVING, jakes
from otafl.validation.checks import (
    Check,
    check_at_least,
    check_distribution,
    check_mean,
    check_ratios,
    state_law,
)

VARIANCES = (0.01, 0.3)
LENGTHS = (1, 4, 8)
CSI_BUDGETS_DB = (0.0, -8.0, 4.0)
"""Power budgets of three devices."""

SNR_DB = 10.0
SNR = db_to_linear(SNR_DB)
ROUNDS = 5
DELAYS = (1, 4)
"""Delays in rounds."""


def _record_csi(bench: Bench, csi: Any, **channel: Any) -> BenchRecord:
    section = {"name": "rayleigh", "snr_db": SNR_DB} | channel
    point = {"channel": section, "csi": csi, "power": "ci"}
    return bench.build_rig(20, bench.scale_size(256), point).record(ROUNDS, 4, 1.0)


def _compute_squared_errors(record: BenchRecord) -> np.ndarray:
    """Compute the squared errors of the estimates, [R, S, K]."""
    off: np.ndarray = np.abs(record.h_hat - record.h) ** 2
    return off


@functools.lru_cache(maxsize=4)
def _error(bench: Bench, variance: float) -> BenchRecord:
    return _record_csi(bench, {"name": "error", "variance": variance})


@state_law("csi error: variance", "E|h_hat - h|^2", "v={:g}", VARIANCES)
def _error_variance(bench: Bench, variance: float) -> Iterator[Check]:
    yield check_mean(variance, _compute_squared_errors(_error(bench, variance)))


@state_law("csi pilots: error of least squares", "Kay 1993; N0 / (L P)", "L={}", LENGTHS)
def _least_squares(bench: Bench, length: int) -> Iterator[Check]:
    """Compare the error of pilots with unequal budgets P with a complex normal one.

    Its variance is 1/(L P). It depends neither on the channel nor on other devices or rounds.
    """
    csi = {"name": "pilots", "length": length}
    record = _record_csi(bench, csi, device_budget_db=CSI_BUDGETS_DB)
    e = (record.h_hat - record.h) * np.sqrt(length * record.budget)
    yield check_mean(1.0 / (length * SNR), _compute_squared_errors(record) * record.budget / SNR)
    # check complex normal errors of unit variance [R, S, K], which are independent
    yield check_distribution(np.abs(e) ** 2, stats.expon.cdf, "power")
    yield check_distribution(np.angle(e) / (2.0 * math.pi) + 0.5, stats.uniform.cdf, "phase")
    pairs = {"rounds": (e[1:], e[:-1]), "trials": (e[:, 1:], e[:, :-1])}
    pairs["devices"] = (e[:, :, 1:], e[:, :, :-1])
    for case, (one, other) in pairs.items():
        yield check_mean(0.0, (one * other.conj()).real, case)
    yield check_mean(0.0, (e * record.h.conj()).real, "product with the channel")


@state_law("csi pilots: error of MMSE", "Kay 1993; e / (1 + e), e = N0/(L P)", "L={}", LENGTHS)
def _mmse(bench: Bench, length: int) -> Iterator[Check]:
    """Compare the error, which is orthogonal to the estimate."""
    csi = {"name": "pilots", "length": length, "estimator": "mmse", "power_db": -10.0}
    error = 1.0 / (length * SNR * 0.1)
    record = _record_csi(bench, csi)
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
    record = _record_csi(bench, {"name": "phase_feedback", "bits": bits})
    yield check_mean(math.sin(x) / x, record.c, "mean gain")
    error = np.angle(record.h * record.h_hat.conj())
    yield check_distribution(error, stats.uniform(-x, 2.0 * x).cdf, "phase error")


@state_law("csi delay: correlation with the channel", "Jakes, J0(2 pi f_D tau)", "{} ms", DELAYS)
def _delay(bench: Bench, rounds: int) -> Iterator[Check]:
    """Compare 1 - E|h_hat - h|^2 / 2 with J0, at 30 km/h and rounds 1 ms apart.

    Devices and trials are independent. In the first round, estimates are of times before it.
    """
    record = _record_csi(bench, {"name": "delay", "rounds": rounds}, **MOVING)
    for case, round in (("first round", 0), ("last round", -1)):
        yield check_mean(jakes(rounds), 1.0 - _compute_squared_errors(record)[round] / 2.0, case)
        product = record.h[round] * record.h_hat[round].conj()
        yield check_mean(0.0, product.imag, f"{case}, imaginary")


ANTENNAS = 6
DEVICES = 5
BUDGETS_DB = (0.0, -3.0, 2.0)
RANDOM = 1000


def _build_rig(bench: Bench, receiver: str) -> Rig:
    channel: dict[str, Any] = {"name": "rayleigh", "snr_db": 10.0, "antennas": ANTENNAS}
    channel["device_budget_db"] = BUDGETS_DB
    return bench.build_rig(DEVICES, 8, {"channel": channel, "receiver": receiver, "power": "full"})


def _channel(rig: Rig) -> np.ndarray:
    """Return h_k [S, K, A] of round 0."""
    return rig.link.channel.get_state(0).h[..., 0, 0].cpu().numpy()


def _reach(rig: Rig) -> np.ndarray:
    """Return sqrt(P_k) h_k [S, K, A] of round 0."""
    return _channel(rig) * np.sqrt(rig.link.budget.budget.cpu().numpy())[..., None]


def _record(rig: Rig) -> BenchRecord:
    return rig.record(1, 8)


@state_law("receiver mrc: sum of channels", "Amiri, Duman, Gunduz 2021")
def _mrc(bench: Bench) -> Iterator[Check]:
    """Compare the sum of the scalar channels with |sum h|, because f = sum h / |sum h|."""
    rig = _build_rig(bench, "mrc")
    law = np.linalg.norm(_channel(rig).sum(1), axis=-1)
    yield check_ratios(_record(rig).h[0].sum(-1).real, law)


@state_law("receiver eigen: most received power", "largest eigenvalue")
def _eigen(bench: Bench) -> Iterator[Check]:
    """Compare sum_k P_k |f^H h_k|^2 with the largest eigenvalue of sum_k P_k h_k h_k^H."""
    rig = _build_rig(bench, "eigen")
    record = _record(rig)
    received = (record.budget * np.abs(record.h) ** 2)[0].sum(-1)
    law = np.linalg.norm(_reach(rig), ord=2, axis=(1, 2)) ** 2
    yield check_ratios(received, law)


@state_law("receiver uniform_forcing: the weakest device", "Chen, Qin, Li 2018")
def _uniform_forcing(bench: Bench) -> Iterator[Check]:
    """Bound the weakest device's received power by those of other combiners.

    They are the best of 1,000 random ones and the first eigenvector. The state with the smallest
    difference counts.
    """
    rig = _build_rig(bench, "uniform_forcing")
    record, reach = _record(rig), _reach(rig)
    ours = (record.budget * np.abs(record.h) ** 2)[0].min(-1)
    z = np.random.default_rng(0).standard_normal((2, RANDOM, ANTENNAS))
    tried = z[0] + 1j * z[1]
    combiners = tried / np.linalg.norm(tried, axis=1, keepdims=True)
    best = (np.abs(reach @ combiners.conj().T) ** 2).min(1).max(1)
    yield check_at_least(1.0, float((ours / best).min()), "random combiners")
    other = _record(_build_rig(bench, "eigen"))
    first = (other.budget * np.abs(other.h) ** 2)[0].min(-1)
    yield check_at_least(1.0, float((ours / first).min()), "first eigenvector")
