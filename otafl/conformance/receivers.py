"""Check the laws of receivers, which combine the server's antennas and scale what it receives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.conformance.bench import Bench, Record, Rig
from otafl.conformance.checks import (
    Check,
    at_least,
    at_most,
    exactly,
    normal_errors,
    ratios,
    stated,
)
from otafl.conformance.policies import settings
from otafl.core import registry

N = 0.5
ANTENNAS = 6
DEVICES = 5
BUDGETS_DB = (0.0, -3.0, 2.0)
RANDOM = 1000

INVERTED = "N / (K^2 eta) of inverted channels"
BOUNDED = "|f| = 1, so |f^H h| <= |h|"
MMSE = "sqrt(eta) = (N + sum m a^2) / sum m a"


def _rig(
    bench: Bench,
    receiver: Any,
    power: Any = "full",
    antennas: int = ANTENNAS,
    trials: int = 8,
) -> Rig:
    channel: dict[str, Any] = {"name": "rayleigh", "snr_db": 10.0, "antennas": antennas}
    channel["device_budget_db"] = BUDGETS_DB
    point = {"channel": channel, "receiver": receiver, "power": power}
    return bench.uplink(DEVICES, trials, point)


def _channel(rig: Rig) -> np.ndarray:
    """Return h_k [S, K, A] of round 0."""
    return rig.link.channel.state(0).h[..., 0, 0].cpu().numpy()


def _reach(rig: Rig) -> np.ndarray:
    """Return sqrt(P_k) h_k [S, K, A] of round 0."""
    return _channel(rig) * np.sqrt(rig.link.budget.budget.cpu().numpy())[..., None]


def _weakest(reach: np.ndarray, combiner: np.ndarray) -> np.ndarray:
    """Return min_k P_k |f^H h_k|^2 [S, n] of unit f [n, A]."""
    return (np.abs(reach @ combiner.conj().T) ** 2).min(1)


@stated("receiver: noise is that of one antenna", INVERTED, "{}", registry.names("receiver"))
def _noise(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the error of inverted channels with noise alone, N / (K^2 eta), as of one antenna."""
    record = _rig(bench, name, "ci", trials=bench.size(128)).record(4, 32)
    yield normal_errors(N / (DEVICES**2 * record.eta), record)


@stated("receiver: no gain beyond the antennas", BOUNDED, "{}", registry.names("receiver"))
def _unit(bench: Bench, name: str) -> Iterator[Check]:
    """Bound the largest |f^H h_k| over |h_k| of all states and devices."""
    rig = _rig(bench, name)
    norm = np.linalg.norm(_channel(rig), axis=-1)
    yield at_most(1.0, float((np.abs(_record(rig).h[0]) / norm).max()))


def _record(rig: Rig) -> Record:
    return rig.record(1, 8)


@stated("receiver mrc: sum of channels", "Amiri, Duman, Gunduz 2021")
def _mrc(bench: Bench) -> Iterator[Check]:
    """Add up the scalar channels to |sum h|, as f = sum h / |sum h|."""
    rig = _rig(bench, "mrc")
    law = np.linalg.norm(_channel(rig).sum(1), axis=-1)
    yield ratios(_record(rig).h[0].sum(-1).real, law)


@stated("receiver eigen: most received power", "largest eigenvalue")
def _eigen(bench: Bench) -> Iterator[Check]:
    """Compare sum_k P_k |f^H h_k|^2 with the largest eigenvalue of sum_k P_k h_k h_k^H."""
    rig = _rig(bench, "eigen")
    record = _record(rig)
    received = (record.budget * np.abs(record.h) ** 2)[0].sum(-1)
    law = np.linalg.norm(_reach(rig), ord=2, axis=(1, 2)) ** 2
    yield ratios(received, law)


@stated("receiver uniform_forcing: the weakest device", "Chen, Qin, Li 2018")
def _uniform_forcing(bench: Bench) -> Iterator[Check]:
    """Bound the weakest device's received power by that with the best of 1,000 random combiners and
    with the first eigenvector, in the state where it is least above them."""
    rig = _rig(bench, "uniform_forcing")
    record, reach = _record(rig), _reach(rig)
    ours = (record.budget * np.abs(record.h) ** 2)[0].min(-1)
    z = np.random.default_rng(0).standard_normal((2, RANDOM, ANTENNAS))
    tried = z[0] + 1j * z[1]
    tried /= np.linalg.norm(tried, axis=1, keepdims=True)
    best = _weakest(reach, tried).max(1)
    yield at_least(1.0, float((ours / best).min()), "random combiners")
    other = _record(_rig(bench, "eigen"))
    first = (other.budget * np.abs(other.h) ** 2)[0].min(-1)
    yield at_least(1.0, float((ours / first).min()), "first eigenvector")


@stated("receiver: one antenna is channel inversion", "Chen, Qin, Li 2018")
def _one_antenna(bench: Bench) -> Iterator[Check]:
    """Compare the estimates with those of channel inversion."""
    estimates = []
    for power in ("ci", "multi_antenna_ci"):
        rig = _rig(bench, "auto", power, 1)
        estimates.append(rig.send(rig.symbols(16, 0), 0)[0])
    yield exactly(0.0, float((estimates[0] - estimates[1]).abs().max()), 1e-12)


@stated("receiver: MMSE scaling", MMSE, "{}", registry.names("power"))
def _mmse(bench: Bench, power: str) -> Iterator[Check]:
    """Compare sqrt(eta) with (N + sum m a^2) / sum m a of arriving amplitudes a, for every policy's
    p."""
    record = _rig(bench, {"name": "auto", "scale": "mmse"}, settings(power), 1).record(4, 8)
    a = (record.h * record.p).real
    arriving = (record.m * a).sum(-1)
    root = (N + (record.m * a**2).sum(-1)) / arriving
    on = arriving > 0
    yield ratios(record.eta[on], root[on] ** 2)
