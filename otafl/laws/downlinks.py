"""Laws of the downlink: the models that devices receive from the server's broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special, stats

from otafl import downlink
from otafl.core.contracts import Broadcast
from otafl.core.units import db_to_linear
from otafl.downlink.base import Delivery, Downlink
from otafl.laws.bench import CONFORMANCE, Bench, Rig
from otafl.laws.checks import (
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_ratios,
    check_share,
    state_law,
)
from otafl.scenario import load_scenario

BROADCAST = CONFORMANCE / "downlink"

DEVICES, TRIALS, REALS = 8, 32, 64
SNRS_DB = (0.0, 15.0)
RATE_BPS = 1e6
BANDWIDTH_HZ = 2e6
OUTAGE = 0.2
LOSS, ATTEMPTS = 0.4, 3
MODES = ("unicast", "broadcast")


AMIRI = "Amiri, Gunduz, Kulkarni, Poor 2022"
TSE = "Tse, Viswanath 2005, 5.4.1"
FADED_SNR = "a exp(a) E1(a)"


def _build_downlink(bench: Bench, settings: dict[str, Any]) -> tuple[Rig, Downlink]:
    """Build a downlink, and the rig of the devices that it serves."""
    rig = bench.build_rig(DEVICES, TRIALS, {"channel": {"bandwidth_hz": BANDWIDTH_HZ}})
    sections = [load_scenario({"name": "conformance", "downlink": settings}).downlink] * TRIALS
    rate_bps = np.full(TRIALS, RATE_BPS)
    return rig, downlink.build(sections, rate_bps, rig.link.budget, rig.streams)


def _errors(bench: Bench, settings: dict[str, Any]) -> np.ndarray:
    """Compute the mean squared errors [R, N] of the devices over the symbols' mean square."""
    rig, made = _build_downlink(bench, settings)
    errors = []
    for round in range(bench.scale_size(16)):
        x = 3.0 * rig.streams.draw_normal(BROADCAST, round, (REALS,))
        delivered = made.send(Broadcast({"x": x}), rig.cohort, round)
        off = (
            delivered.expand_rows(rig.cohort, 0, rig.cohort.num_rows).tensors["x"]
            - x[rig.cohort.trial]
        )
        power = x.square().mean(1)[rig.cohort.trial]
        errors.append((off.square().mean(1) / power).cpu().numpy())
    return np.stack(errors)


def _record_arrivals(bench: Bench, **settings: Any) -> list[Delivery]:
    """Return the deliveries of several rounds of a digital broadcast."""
    rig, made = _build_downlink(bench, {"name": "digital"} | settings)
    x = rig.streams.draw_normal(BROADCAST, 0, (REALS,))
    return [
        made.send(Broadcast({"x": x}), rig.cohort, round) for round in range(bench.scale_size(64))
    ]


@state_law("downlink ideal: no error", "the broadcast itself")
def _ideal(bench: Bench) -> Iterator[Check]:
    """Check that there is no error."""
    yield check_exact(0.0, float(_errors(bench, {"name": "ideal"}).max()), 0.0)


@state_law("downlink analog: error of inversion", f"{AMIRI}; m / (2 gamma)", "{:g} dB", SNRS_DB)
def _inversion(bench: Bench, snr_db: float) -> Iterator[Check]:
    """Compare the error without fading with m / (2 gamma)."""
    yield check_mean(
        0.5 / db_to_linear(snr_db), _errors(bench, {"name": "analog", "snr_db": snr_db})
    )


@state_law(
    "downlink analog: error of MMSE with fading", f"{AMIRI}; {FADED_SNR}", "{:g} dB", SNRS_DB
)
def _mmse(bench: Bench, snr_db: float) -> Iterator[Check]:
    """Compare the error under Rayleigh fading with E[1 / (1 + 2 gamma g)] = a exp(a) E1(a).

    Here a = 1 / (2 gamma).
    """
    settings = {"name": "analog", "snr_db": snr_db, "fading": True, "estimator": "mmse"}
    a = 0.5 / db_to_linear(snr_db)
    yield check_mean(a * math.exp(a) * float(special.exp1(a)), _errors(bench, settings))


@state_law("downlink analog: law of the error", f"{AMIRI}; z / |h|", "{}", ("no fading", "fading"))
def _error_law(bench: Bench, case: str) -> Iterator[Check]:
    """Compare the errors of inversion, times sqrt(2 gamma / m), with the normal distribution.

    Under Rayleigh fading, the squared error of a coordinate follows the F distribution of 1 and 2
    degrees of freedom.
    """
    settings = {"name": "analog", "snr_db": 10.0, "fading": case == "fading"}
    rig, made = _build_downlink(bench, settings)
    found = []
    for round in range(bench.scale_size(64)):
        x = rig.streams.draw_normal(BROADCAST, round, (REALS,))
        delivered = made.send(Broadcast({"x": x}), rig.cohort, round)
        off = (
            delivered.expand_rows(rig.cohort, 0, rig.cohort.num_rows).tensors["x"]
            - x[rig.cohort.trial]
        )
        root = (2.0 * db_to_linear(10.0) / x.square().mean(1)).sqrt()[rig.cohort.trial]
        found.append((off * root[:, None]).cpu().numpy())
    errors = np.stack(found)
    if case == "fading":  # one coordinate of each device, because all have the same fade
        yield check_distribution(errors[..., 0] ** 2, stats.f(1, 2).cdf)
    else:
        yield check_distribution(errors, stats.norm.cdf)
        yield check_mean(0.0, errors[:, 1:, 0] * errors[:, :-1, 0], "neighbours")


@state_law("downlink analog: airtime", "channel uses / bandwidth")
def _analog_airtime(bench: Bench) -> Iterator[Check]:
    """Check the time of one real per channel use, and of their mean square as a word."""
    rig, made = _build_downlink(bench, {"name": "analog"})
    x = rig.streams.draw_normal(BROADCAST, 0, (REALS,))
    seconds = made.send(Broadcast({"x": x}), rig.cohort, 0).seconds
    yield check_exact(REALS / BANDWIDTH_HZ + 32.0 / RATE_BPS, float(seconds.mean()))


@state_law("downlink digital: outage", f"{TSE}; 1 - epsilon receive it")
def _outage(bench: Bench) -> Iterator[Check]:
    """Check airtime and deliveries at the rate B log2(1 - gamma ln(1 - epsilon))."""
    rule = {"mode": "unicast", "rate": "outage", "snr_db": 10.0, "outage": OUTAGE}
    sent = _record_arrivals(bench, **rule)
    rate = BANDWIDTH_HZ * math.log2(1.0 - 10.0 * math.log(1.0 - OUTAGE))
    seconds = float(sent[0].seconds.mean())
    yield check_exact(DEVICES * 32.0 * REALS / rate, seconds, case="airtime")
    delivered = np.stack(
        [one.delivered_mask.cpu().numpy() for one in sent if one.delivered_mask is not None]
    )
    yield check_share(1.0 - OUTAGE, int(delivered.sum()), delivered.size, "delivered")


@state_law("downlink digital: rate of the channel", f"{TSE}; B log2(1 + gamma g)")
def _channel_rate(bench: Bench) -> Iterator[Check]:
    """Compare the gains that explain the seconds of each device's copy with the exponential law."""
    sent = _record_arrivals(bench, mode="unicast", rate="channel", snr_db=10.0)
    until = np.stack([one.row_seconds for one in sent if one.row_seconds is not None])
    until = until.reshape(len(sent), TRIALS, DEVICES)
    seconds = np.diff(until, axis=-1, prepend=0.0)
    gain = (2.0 ** (32.0 * REALS / seconds / BANDWIDTH_HZ) - 1.0) / 10.0
    yield check_distribution(gain, stats.expon.cdf)


@state_law("downlink digital: losses and outage", "q = 1 - (1 - loss)(1 - epsilon)", "{}", MODES)
def _both_losses(bench: Bench, mode: str) -> Iterator[Check]:
    """Count deliveries of a packet that is sent once, or up to three times, and its copies."""
    rule = {"rate": "outage", "snr_db": 10.0, "outage": OUTAGE, "loss": LOSS, "mode": mode}
    q = 1.0 - (1.0 - LOSS) * (1.0 - OUTAGE)
    for attempts in (1, ATTEMPTS):
        sent = _record_arrivals(bench, **rule, attempts=attempts)
        delivered = np.stack(
            [one.delivered_mask.cpu().numpy() for one in sent if one.delivered_mask is not None]
        )
        case = f"{attempts} attempts"
        yield check_share(1.0 - q**attempts, int(delivered.sum()), delivered.size, case)
        law = DEVICES * (1.0 - q**attempts) / (1.0 - q)
        if mode == "broadcast":
            law = sum(1.0 - (1.0 - q**a) ** DEVICES for a in range(attempts))
        copies = np.stack([one.bits for one in sent]) / (32.0 * REALS)
        yield check_mean(law, copies, f"{case}, copies", bias=1e-9)


@state_law(
    "downlink digital: transmissions", "(1 - q^A)/(1 - q); sum_a 1 - (1 - q^a)^n", "{}", MODES
)
def _transmissions(bench: Bench, mode: str) -> Iterator[Check]:
    """Count the copies of packets that are lost with probability q and sent up to three times.

    They are sent to each device or, until all n devices have received them, to all.
    """
    sent = _record_arrivals(bench, mode=mode, loss=LOSS, attempts=ATTEMPTS)
    copies = np.stack([one.bits for one in sent]) / (32.0 * REALS)
    law = DEVICES * (1.0 - LOSS**ATTEMPTS) / (1.0 - LOSS)
    if mode == "broadcast":
        law = sum(1.0 - (1.0 - LOSS**a) ** DEVICES for a in range(ATTEMPTS))
    yield check_mean(law, copies, "copies")
    seconds = np.stack([one.seconds for one in sent])
    yield check_ratios(seconds, copies * 32.0 * REALS / RATE_BPS, case="seconds")
    delivered = np.stack(
        [one.delivered_mask.cpu().numpy() for one in sent if one.delivered_mask is not None]
    )
    yield check_share(1.0 - LOSS**ATTEMPTS, int(delivered.sum()), delivered.size, "delivered")


DIGITAL = "otafl.downlink.digital:DigitalDownlink"
