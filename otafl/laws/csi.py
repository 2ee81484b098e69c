"""Laws of channel state information: the channel estimates of devices and server."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench, Record
from otafl.laws.channels import BANDWIDTH_HZ, MOVING, compute_frequency_covariance, jakes
from otafl.laws.checks import Check, check_distribution, check_exact, check_mean, state_law

VARIANCES = (0.01, 0.3)
LENGTHS = (1, 4, 8)
BUDGETS_DB = (0.0, -8.0, 4.0)
"""Power budgets of three devices."""
ESTIMATORS = ("ls", "mmse")
SIDE = {"over_the_air": 1, "digital": 0}
"""Side information of a device beside its pilots, by transport."""

SNR_DB = 10.0
SNR = db_to_linear(SNR_DB)
ROUNDS = 5
DELAYS = (1, 4)
"""Delays in rounds."""
FRESH = ("rayleigh", "tdl-a", "umi")
"""Channels whose fading is drawn anew in each round if devices are at rest."""


def _record(bench: Bench, csi: Any, **channel: Any) -> Record:
    section = {"name": "rayleigh", "snr_db": SNR_DB} | channel
    point = {"channel": section, "csi": csi, "power": "ci"}
    return bench.build_rig(20, bench.scale_size(256), point).record(ROUNDS, 4, 1.0)


@state_law("csi perfect: the estimate is the channel", "h_hat = h")
def _perfect(bench: Bench) -> Iterator[Check]:
    record = _record(bench, "perfect")
    yield check_exact(0.0, float(np.abs(record.h_hat - record.h).max()), 0.0)


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


@state_law("csi error: independent of the channel", "E (h_hat - h) h^* = 0", "v={:g}", VARIANCES)
def _error_apart(bench: Bench, variance: float) -> Iterator[Check]:
    record = _error(bench, variance)
    yield check_mean(0.0, ((record.h_hat - record.h) * record.h.conj()).real)


@state_law("csi error: law of the error", "complex normal", "v={:g}", VARIANCES)
def _error_law(bench: Bench, variance: float) -> Iterator[Check]:
    """Compare errors with a complex normal distribution.

    Squared errors are exponential, and phases uniform. Errors of neighbouring devices, rounds and
    trials have a mean product of 0.
    """
    record = _error(bench, variance)
    e = (record.h_hat - record.h) / math.sqrt(variance)
    yield from _normal(e)


def _normal(e: np.ndarray) -> Iterator[Check]:
    """Check complex normal errors of unit variance [R, S, K], which are independent."""
    yield check_distribution(np.abs(e) ** 2, stats.expon.cdf, "power")
    yield check_distribution(np.angle(e) / (2.0 * math.pi) + 0.5, stats.uniform.cdf, "phase")
    pairs = {"rounds": (e[1:], e[:-1]), "trials": (e[:, 1:], e[:, :-1])}
    pairs["devices"] = (e[:, :, 1:], e[:, :, :-1])
    for case, (one, other) in pairs.items():
        yield check_mean(0.0, (one * other.conj()).real, case)


@state_law(
    "csi error: gain of inverted channels", "E Re(h / h_hat) = 1/(1 + v)", "v={:g}", VARIANCES
)
def _error_gain(bench: Bench, variance: float) -> Iterator[Check]:
    """Compare the mean gain with 1 / (1 + v): given h_hat, h is normal about h_hat / (1 + v).

    It is the same for every h_hat. Only those above 0.5 are used, which bounds the spread of the
    ratio.
    """
    record = _error(bench, variance)
    yield check_mean(1.0 / (1.0 + variance), record.c[np.abs(record.h_hat) > 0.5])


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


@state_law("csi pilots: channel uses", "L for each pilot group and coherence block", "{}", SIDE)
def _uses(bench: Bench, transport: str) -> Iterator[Check]:
    """Count the side information of five devices in three blocks.

    Four groups of sub-carriers with a comb of three have two pilots on two groups in each block.
    Over the air, a mean power is added.
    """
    channel = {"name": "tdl-a", "subcarrier_groups": 4, "block_symbols": 8}
    csi = {"name": "pilots", "length": 2, "comb": 3}
    point = {"channel": channel, "csi": csi, "transport": transport, "power": "full"}
    rig = bench.build_rig(5, 2, point)
    side = rig.send(rig.draw_symbols(24, 0), 0)[1].side_symbols
    yield check_exact(5.0 * (2 * 2 * 3 + SIDE[transport]), float(side.mean()))


COMB, WIDTH = 4, 5
"""Groups of sub-carriers between two pilots, and number of groups."""


@state_law("csi pilots: error between pilots", "linear interpolation", "{:g} ns", (0.0, 30.0))
def _between_pilots(bench: Bench, delay_spread_ns: float) -> Iterator[Check]:
    """Compare the errors of groups between two pilots, over a flat and a selective channel.

    Of the pilots' estimates with weights w and 1 - w and errors e = N0 / (L P), the error is (w^2 +
    (1 - w)^2) e, and that of the curve through the true channel. The latter follows from the
    covariance R over frequency: 1 + w^2 + (1 - w)^2 + 2 Re[w (1 - w) R_C - w R_d - (1 - w) R_C-d].
    """
    spread_s = delay_spread_ns * 1e-9
    channel = {"name": "tdl-a", "subcarrier_groups": WIDTH, "delay_spread_s": spread_s}
    channel |= {"snr_db": SNR_DB, "bandwidth_hz": BANDWIDTH_HZ}
    csi = {"name": "pilots", "comb": COMB, "length": 3}
    point = {"channel": channel, "csi": csi, "power": "full"}
    link = bench.build_rig(50, bench.scale_size(160), point).link
    state = link.channel.get_state(0)
    off = (link.csi.estimate(state.h, state.gain, 0) - state.h).abs().square()[..., 0, 0, :]
    covariance = compute_frequency_covariance("A", WIDTH, spread_s).real
    for group in range(WIDTH):
        d = group % COMB
        w = 1.0 - d / COMB
        squares = w**2 + (1.0 - w) ** 2
        bend = w * (1.0 - w) * covariance[COMB] - w * covariance[d]
        bend -= (1.0 - w) * covariance[COMB - d]
        law = squares / (3.0 * SNR) + 1.0 + squares + 2.0 * float(bend)
        yield check_mean(law, off[..., group].cpu().numpy(), f"group {group}")


FAR_DB = 95.0
FAR = {"snr_db": None, "path_loss_db": FAR_DB, "tx_power_dbm": 20.0, "bandwidth_hz": 1e6}
"""Budgets of 20 dBm over thermal noise of -109 dBm with its noise figure: 34 dB of received SNR."""


@state_law("csi pilots: error over a path loss", "Kay 1993; e = N0 / (L P beta)", "{}", ESTIMATORS)
def _far_pilots(bench: Bench, estimator: str) -> Iterator[Check]:
    """Compare the error of h, E|h|^2 = 1, with that of pilots received at SNR = P beta."""
    csi = {"name": "pilots", "length": 2, "estimator": estimator, "power_db": -20.0}
    record = _record(bench, csi, **FAR)
    snr_db = 20.0 - FAR_DB - (-174.0 + 10.0 * math.log10(1e6) + 5.0) - 20.0
    error = 1.0 / (2.0 * db_to_linear(snr_db))
    law = error if estimator == "ls" else error / (1.0 + error)
    yield check_mean(law, _compute_squared_errors(record) / record.gain)


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


@state_law("csi delay: fading anew in each round", "E h h_hat^* = 0", "{}", FRESH)
def _fresh(bench: Bench, channel: str) -> Iterator[Check]:
    """Compare the first round's channels of devices at rest with their estimates."""
    groups = {} if channel == "rayleigh" else {"subcarrier_groups": 1}
    point = {"channel": {"name": channel} | groups, "csi": "delay", "power": "full"}
    link = bench.build_rig(bench.scale_size(1000), 1, point).link
    state = link.channel.get_state(0)
    h_hat = link.csi.estimate(state.h, state.gain, 0)
    product = (state.h * h_hat.conj()).flatten().cpu().numpy()
    yield check_mean(0.0, product.real, "real")
    yield check_mean(0.0, product.imag, "imaginary")
