"""Laws of channel state information: the channel estimates of devices and server."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats

from otafl.core.contracts import unsqueeze_like
from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench, Record
from otafl.laws.channels import BANDWIDTH_HZ, MOVING, compute_frequency_covariance, jakes
from otafl.laws.checks import Check, check_distribution, check_exact, check_mean, state_law
from otafl.laws.mutations import (
    build_mutations,
    change_objects,
    change_result,
    replace_by,
    scale_result,
)

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


# Mutations


def _drop_gain(real: Any) -> Any:
    return lambda self, gain: real(self, gain / gain)


def _amplitude(real: Any) -> Any:
    return lambda self, gain: real(self, gain.sqrt())


def _use_every_group(csi: Any) -> None:
    csi._symbols = csi.settings.length * 4


def _half_the_pilots(real: Any) -> Any:
    return lambda self, gain: 2.0 * real(self, gain)


def _toward_the_other_pilot(real: Any) -> Any:
    """Swap the weights of the two pilots around a group."""

    def interpolate(*args: Any) -> Any:
        h_hat = real(*args)
        for first in range(0, h_hat.shape[-1] - COMB, COMB):
            between = slice(first + 1, first + COMB)
            h_hat[..., between] = h_hat[..., between].flip(-1)
        return h_hat

    return interpolate


def _part_of_the_channel(real: Any) -> Any:
    """Use errors that are proportional to the channel."""
    return lambda streams, purpose, round, h, variance: variance.sqrt() * h


def _one_error(real: Any) -> Any:
    """Use the error of the first device for all devices."""

    def errors(streams: Any, purpose: Any, round: int, h: Any, variance: Any) -> Any:
        return real(streams, purpose, round, h, variance)[:, :1].expand_as(h)

    return errors


def _round_down(real: Any) -> Any:
    def round_phases(self: Any, h: Any) -> Any:
        step = unsqueeze_like(2.0 * math.pi / 2.0 ** self.hyper["bits"], h)
        return torch.polar(h.abs(), torch.floor(h.angle() / step) * step)

    return round_phases


def _never_before_the_run(real: Any) -> Any:
    """Use the channel of round 0 in the rounds that have none before."""

    def estimate(self: Any, h: Any, gain: Any, round: int) -> Any:
        return h if round < self.settings.rounds else real(self, h, gain, round)

    return estimate


def _a_round_older(real: Any) -> Any:
    return lambda self, h, gain, round: real(self, h, gain, round - 1)


MUTATIONS = (
    build_mutations(
        "csi pilots: ",
        {
            "no path loss": (
                "error over a path loss",
                replace_by("otafl.csi.pilots:Pilots.error_variance", _drop_gain),
            ),
            "path loss of the amplitude": (
                "error over a path loss",
                replace_by("otafl.csi.pilots:Pilots.error_variance", _amplitude),
            ),
            "pilots on every group": (
                "channel uses",
                change_objects("otafl.csi.pilots:Pilots", _use_every_group),
            ),
            "toward the other pilot": (
                "error between pilots",
                replace_by("otafl.csi.pilots:_interpolate_pilots", _toward_the_other_pilot),
            ),
            "half the pilots": (
                {
                    "error between pilots",
                    "error of MMSE",
                    "error of least squares",
                    "error over a path loss",
                },
                replace_by("otafl.csi.pilots:Pilots.error_variance", _half_the_pilots),
            ),
        },
    )
    + build_mutations(
        "csi perfect: ",
        {
            "an estimate that is larger": (
                "the estimate is the channel",
                change_result("otafl.csi.perfect:Perfect.estimate", lambda h: 1.001 * h),
            ),
        },
    )
    + build_mutations(
        "csi error: ",
        {
            "twice the variance": (
                {"gain of inverted channels", "law of the error", "variance"},
                scale_result("otafl.csi.error:draw_device_errors", 2.0**0.5),
            ),
            "one error for all devices": (
                "law of the error",
                replace_by("otafl.csi.error:draw_device_errors", _one_error),
            ),
            "errors along the channel": (
                {"gain of inverted channels", "independent of the channel"},
                replace_by("otafl.csi.error:draw_device_errors", _part_of_the_channel),
            ),
        },
    )
    + build_mutations(
        "csi phase_feedback: ",
        {
            "phases rounded down": (
                "mean gain",
                replace_by("otafl.csi.phase_feedback:PhaseFeedback._round_phases", _round_down),
            ),
        },
    )
    + build_mutations(
        "csi delay: ",
        {
            "the channel of a round before": (
                "correlation with the channel",
                replace_by("otafl.csi.delay:Delay.estimate", _a_round_older),
            ),
            "the channel of the first round": (
                {"correlation with the channel", "fading anew in each round"},
                replace_by("otafl.csi.delay:Delay.estimate", _never_before_the_run),
            ),
        },
    )
)
