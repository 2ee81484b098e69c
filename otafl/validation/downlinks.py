"""Laws of the downlink: the models that devices receive from the server's broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl import downlink
from otafl.core.contracts import Broadcast
from otafl.core.units import db_to_linear
from otafl.downlink.base import BroadcastDelivery, Downlink
from otafl.scenario import load_scenario
from otafl.validation.bench import CONFORMANCE, Bench, Rig
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_ratios,
    check_share,
    state_law,
)

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


def _record_arrivals(bench: Bench, **settings: Any) -> list[BroadcastDelivery]:
    """Return the deliveries of several rounds of a digital broadcast."""
    rig, made = _build_downlink(bench, {"name": "digital"} | settings)
    x = rig.streams.draw_normal(BROADCAST, 0, (REALS,))
    return [
        made.send(Broadcast({"x": x}), rig.cohort, round) for round in range(bench.scale_size(64))
    ]


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
