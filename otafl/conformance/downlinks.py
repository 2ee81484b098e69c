"""Laws of the downlink: what devices hear of the server's broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from otafl.conformance.bench import Bench
from otafl.conformance.checks import Check, Law, exactly, mean
from otafl.core import registry
from otafl.core.contracts import Broadcast
from otafl.downlink.downlink import DownlinkSetup
from otafl.engine.assembly import hyper_of
from otafl.scenario import load_scenario

DEVICES, TRIALS, REALS = 8, 32, 64
SNRS_DB = (0.0, 15.0)
RATE_BPS = 1e6


def _errors(bench: Bench, settings: dict[str, Any]) -> np.ndarray:
    """[R, N] mean squared errors of the devices over the symbols' mean square."""
    rig = bench.uplink(DEVICES, TRIALS, {})
    rows = [load_scenario({"name": "conformance", "downlink": settings})] * TRIALS
    hyper = hyper_of(rows, "downlink", rig.streams)
    setup = DownlinkSetup(np.full(TRIALS, RATE_BPS), rig.link.budget, rig.streams, hyper)
    make = registry.component("downlink", rows[0].downlink.name)
    downlink = make(rows[0].downlink, setup)
    errors = []
    for round in range(bench.size(16)):
        x = 3.0 * rig.streams.normal("conformance/downlink", round, (REALS,))
        heard = downlink.send(Broadcast({"x": x}), rig.cohort, round)
        off = heard.rows(rig.cohort, 0, rig.cohort.size).blocks["x"] - x[rig.cohort.trial]
        power = x.square().mean(1)[rig.cohort.trial]
        errors.append((off.square().mean(1) / power).cpu().numpy())
    return np.stack(errors)


def _ideal(bench: Bench) -> Iterator[Check]:
    yield exactly(0.0, float(_errors(bench, {"name": "ideal"}).max()), 0.0)


def _inversion(bench: Bench) -> Iterator[Check]:
    """Without fading."""
    for snr_db in SNRS_DB:
        law = 0.5 / 10.0 ** (snr_db / 10.0)
        yield mean(law, _errors(bench, {"name": "analog", "snr_db": snr_db}), f"{snr_db:g} dB")


def _mmse(bench: Bench) -> Iterator[Check]:
    """Rayleigh fading: E[1 / (1 + 2 gamma g)] = a exp(a) E1(a), a = 1 / (2 gamma)."""
    for snr_db in SNRS_DB:
        settings = {"name": "analog", "snr_db": snr_db, "fading": True, "estimator": "mmse"}
        a = 0.5 / 10.0 ** (snr_db / 10.0)
        law = a * math.exp(a) * float(special.exp1(a))
        yield mean(law, _errors(bench, settings), f"{snr_db:g} dB")


AMIRI = "Amiri, Gunduz, Kulkarni, Poor 2022"
LAWS = (
    Law("downlink ideal: no error", "the broadcast itself", _ideal),
    Law("downlink analog: error of inversion", f"{AMIRI}; m / (2 gamma)", _inversion),
    Law("downlink analog: error of MMSE with fading", f"{AMIRI}; a exp(a) E1(a)", _mmse),
)
