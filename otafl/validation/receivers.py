"""Laws of receivers, which combine the server's antennas and scale the received signal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.validation.bench import Bench, Record, Rig
from otafl.validation.checks import (
    Check,
    check_at_least,
    check_exact,
    check_ratios,
    state_law,
)

ANTENNAS = 6
DEVICES = 5
BUDGETS_DB = (0.0, -3.0, 2.0)
RANDOM = 1000


def _build_rig(
    bench: Bench,
    receiver: Any,
    power: Any = "full",
    antennas: int = ANTENNAS,
    trials: int = 8,
) -> Rig:
    channel: dict[str, Any] = {"name": "rayleigh", "snr_db": 10.0, "antennas": antennas}
    channel["device_budget_db"] = BUDGETS_DB
    point = {"channel": channel, "receiver": receiver, "power": power}
    return bench.build_rig(DEVICES, trials, point)


def _channel(rig: Rig) -> np.ndarray:
    """Return h_k [S, K, A] of round 0."""
    return rig.link.channel.get_state(0).h[..., 0, 0].cpu().numpy()


def _reach(rig: Rig) -> np.ndarray:
    """Return sqrt(P_k) h_k [S, K, A] of round 0."""
    return _channel(rig) * np.sqrt(rig.link.budget.budget.cpu().numpy())[..., None]


def _weakest(reach: np.ndarray, combiner: np.ndarray) -> np.ndarray:
    """Compute min_k P_k |f^H h_k|^2 [S, n] of unit f [n, A]."""
    return (np.abs(reach @ combiner.conj().T) ** 2).min(1)


def _random_combiners() -> np.ndarray:
    """Draw unit combiners [n, A]."""
    z = np.random.default_rng(0).standard_normal((2, RANDOM, ANTENNAS))
    tried = z[0] + 1j * z[1]
    unit: np.ndarray = tried / np.linalg.norm(tried, axis=1, keepdims=True)
    return unit


def _record(rig: Rig) -> Record:
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
    best = _weakest(reach, _random_combiners()).max(1)
    yield check_at_least(1.0, float((ours / best).min()), "random combiners")
    other = _record(_build_rig(bench, "eigen"))
    first = (other.budget * np.abs(other.h) ** 2)[0].min(-1)
    yield check_at_least(1.0, float((ours / first).min()), "first eigenvector")


@state_law("receiver: one antenna is channel inversion", "Chen, Qin, Li 2018")
def _one_antenna(bench: Bench) -> Iterator[Check]:
    """Compare the estimates with those of channel inversion."""
    estimates = []
    for power in ("ci", "multi_antenna_ci"):
        rig = _build_rig(bench, "auto", power, 1)
        estimates.append(rig.send(rig.draw_symbols(16, 0), 0)[0])
    yield check_exact(0.0, float((estimates[0] - estimates[1]).abs().max()), 1e-12)
