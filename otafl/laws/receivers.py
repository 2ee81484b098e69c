"""Laws of receivers, which combine the server's antennas and scale the received signal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import optimize

from otafl.core import registry
from otafl.laws.bench import Bench, Record, Rig
from otafl.laws.checks import (
    Check,
    check_at_least,
    check_at_most,
    check_exact,
    check_mean,
    check_normal_errors,
    check_ratios,
    state_law,
)
from otafl.laws.policies import build_settings

N = 0.5
ANTENNAS = 6
DEVICES = 5
BUDGETS_DB = (0.0, -3.0, 2.0)
RANDOM = 1000
TIGHT = 0.02
"""Relative power above the weakest device up to which a device counts as weak.

It is also the largest norm of the combiner that such devices leave unexplained.
"""

INVERTED = "N / (K^2 eta) of inverted channels"
BOUNDED = "|f| = 1, so |f^H h| <= |h|"
MMSE = "sqrt(eta) = (N + sum m a^2) / sum m a"


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


@state_law(
    "receiver: noise is that of one antenna", INVERTED, "{}", registry.list_names("receiver")
)
def _noise(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the error of inverted channels with the noise of one antenna, N / (K^2 eta)."""
    record = _build_rig(bench, name, "ci", trials=bench.scale_size(128)).record(4, 32)
    yield check_normal_errors(N / (DEVICES**2 * record.eta), record)


@state_law("receiver: no gain beyond the antennas", BOUNDED, "{}", registry.list_names("receiver"))
def _unit(bench: Bench, name: str) -> Iterator[Check]:
    """Bound the largest |f^H h_k| over |h_k| of all states and devices."""
    rig = _build_rig(bench, name)
    norm = np.linalg.norm(_channel(rig), axis=-1)
    yield check_at_most(1.0, float((np.abs(_record(rig).h[0]) / norm).max()))


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


@state_law("receiver eigen: above random combiners", "largest eigenvalue; trace / A on average")
def _eigen_above(bench: Bench) -> Iterator[Check]:
    """Bound the received power from below by that of the best of 1,000 random combiners.

    The state with the smallest difference counts. The mean over random combiners is the trace over
    A.
    """
    rig = _build_rig(bench, "eigen")
    record, reach = _record(rig), _reach(rig)
    ours = (record.budget * np.abs(record.h) ** 2)[0].sum(-1)
    tried = (np.abs(reach @ _random_combiners().conj().T) ** 2).sum(1)  # [S, n]
    yield check_at_least(1.0, float((ours / tried.max(1)).min()), "best of them")
    trace = (np.abs(reach) ** 2).sum((1, 2))
    yield check_mean(1.0, (tried / trace[:, None] * ANTENNAS).mean(0), "mean of them")


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


@state_law("receiver uniform_forcing: optimality", "Karush, Kuhn, Tucker; f = sum l_k a_k a_k^H f")
def _optimal(bench: Bench) -> Iterator[Check]:
    """Fit f by a_k a_k^H f, a_k = sqrt(P_k) h_k, of the weakest devices with weights of at least 0.

    The norm of the remainder of unit f is bounded in the worst state. At an optimum of the least
    |f|^2 with all |f^H a_k|^2 >= 1, the remainder is 0.
    """
    for antennas in (2, ANTENNAS):
        rig = _build_rig(bench, "uniform_forcing", antennas=antennas)
        record, reach = _record(rig), _reach(rig)
        arrives = record.h[0] * np.sqrt(record.budget[0])  # f^H a_k
        rest = [_compute_residual(*one) for one in zip(reach, arrives, strict=True)]
        yield check_at_most(TIGHT, max(rest), case=f"{antennas} antennas")


def _compute_residual(reach: np.ndarray, arrives: np.ndarray) -> float:
    """Return the norm of f that the weakest devices leave, from a_k [K, A] and f^H a_k [K]."""
    f = np.linalg.pinv(reach.conj()) @ arrives.conj()  # f is in the span of a
    power = np.abs(arrives) ** 2
    tight = power <= power.min() * (1.0 + TIGHT)
    pulls = reach[tight] * arrives[tight, None].conj()  # a_k a_k^H f
    pulls /= np.linalg.norm(pulls, axis=1, keepdims=True)
    basis = np.hstack([pulls.real, pulls.imag]).T
    rest: float = optimize.nnls(basis, np.hstack([f.real, f.imag]))[1]
    return rest


@state_law("receiver: one antenna is channel inversion", "Chen, Qin, Li 2018")
def _one_antenna(bench: Bench) -> Iterator[Check]:
    """Compare the estimates with those of channel inversion."""
    estimates = []
    for power in ("ci", "multi_antenna_ci"):
        rig = _build_rig(bench, "auto", power, 1)
        estimates.append(rig.send(rig.draw_symbols(16, 0), 0)[0])
    yield check_exact(0.0, float((estimates[0] - estimates[1]).abs().max()), 1e-12)


@state_law("receiver: MMSE scaling", MMSE, "{}", registry.list_names("power"))
def _mmse(bench: Bench, power: str) -> Iterator[Check]:
    """Compare sqrt(eta) with (N + sum m a^2) / sum m a of amplitudes a, for every policy's p."""
    record = _build_rig(bench, {"name": "auto", "scale": "mmse"}, build_settings(power), 1).record(
        4, 8
    )
    a = (record.h * record.p).real
    arriving = (record.m * a).sum(-1)
    root = (N + (record.m * a**2).sum(-1)) / arriving
    on = arriving > 0
    yield check_ratios(record.eta[on], root[on] ** 2)
