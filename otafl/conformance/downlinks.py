"""Check the laws of the downlink, of what devices hear of the server's broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl import downlink
from otafl.conformance.bench import CONFORMANCE, Bench
from otafl.conformance.checks import Check, exactly, mean, stated
from otafl.core.contracts import Broadcast
from otafl.core.units import db_to_linear
from otafl.scenario import load_scenario

BROADCAST = CONFORMANCE / "downlink"

DEVICES, TRIALS, REALS = 8, 32, 64
SNRS_DB = (0.0, 15.0)
RATE_BPS = 1e6


AMIRI = "Amiri, Gunduz, Kulkarni, Poor 2022"
FADED = "a exp(a) E1(a)"


def _errors(bench: Bench, settings: dict[str, Any]) -> np.ndarray:
    """Return the mean squared errors [R, N] of the devices over the symbols' mean square."""
    rig = bench.uplink(DEVICES, TRIALS, {})
    sections = [load_scenario({"name": "conformance", "downlink": settings}).downlink] * TRIALS
    rate_bps = np.full(TRIALS, RATE_BPS)
    made = downlink.build(sections, rate_bps, rig.link.budget, rig.streams)
    errors = []
    for round in range(bench.size(16)):
        x = 3.0 * rig.streams.normal(BROADCAST, round, (REALS,))
        heard = made.send(Broadcast({"x": x}), rig.cohort, round)
        off = heard.rows(rig.cohort, 0, rig.cohort.size).blocks["x"] - x[rig.cohort.trial]
        power = x.square().mean(1)[rig.cohort.trial]
        errors.append((off.square().mean(1) / power).cpu().numpy())
    return np.stack(errors)


@stated("downlink ideal: no error", "the broadcast itself")
def _ideal(bench: Bench) -> Iterator[Check]:
    """Find no error."""
    yield exactly(0.0, float(_errors(bench, {"name": "ideal"}).max()), 0.0)


@stated("downlink analog: error of inversion", f"{AMIRI}; m / (2 gamma)", "{:g} dB", SNRS_DB)
def _inversion(bench: Bench, snr_db: float) -> Iterator[Check]:
    """Compare the error without fading with m / (2 gamma)."""
    yield mean(0.5 / db_to_linear(snr_db), _errors(bench, {"name": "analog", "snr_db": snr_db}))


@stated("downlink analog: error of MMSE with fading", f"{AMIRI}; {FADED}", "{:g} dB", SNRS_DB)
def _mmse(bench: Bench, snr_db: float) -> Iterator[Check]:
    """Compare the error under Rayleigh fading with E[1 / (1 + 2 gamma g)] = a exp(a) E1(a), a = 1 /
    (2 gamma)."""
    settings = {"name": "analog", "snr_db": snr_db, "fading": True, "estimator": "mmse"}
    a = 0.5 / db_to_linear(snr_db)
    yield mean(a * math.exp(a) * float(special.exp1(a)), _errors(bench, settings))
