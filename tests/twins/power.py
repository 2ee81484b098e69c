"""Power policies one trial and segment at a time, in plain loops over devices, from the
literature's formulas. h, gain, budget, m, sends are [K]."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special
from support.power_links import ANTENNAS, HYPER, N, policy_of

from otafl.power.base import PowerPolicy

Scalars = tuple[np.ndarray, float, np.ndarray]
"""p [K], eta, active [K] of one trial and segment."""

Twin = Callable[..., Scalars]


def quality(h, budget, m):  # type: ignore[no-untyped-def]
    return budget * abs(h) ** 2 / m


def none_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    there = np.flatnonzero(sends)
    eta = sum(budget[k] * abs(h[k]) ** 2 for k in there) / sum(m[k] for k in there)
    return np.where(sends, math.sqrt(eta) / h, 0.0), eta, sends


def full_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    p, top, bottom = np.zeros(len(h), complex), N, 0.0
    for k in np.flatnonzero(sends):
        p[k] = math.sqrt(budget[k] / m[k]) * np.exp(-1j * np.angle(h[k]))
        top += m[k] * quality(h[k], budget[k], m[k])
        bottom += m[k] * math.sqrt(quality(h[k], budget[k], m[k]))
    return p, (top / bottom) ** 2, sends


def ci_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    eta = min(quality(h[k], budget[k], m[k]) for k in np.flatnonzero(sends))
    return np.where(sends, math.sqrt(eta) / h, 0.0), eta, sends


def tci_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    least = HYPER["threshold"]
    rho = min(
        budget[k] * gain[k] / special.exp1(least / gain[k]) / m[k] for k in np.flatnonzero(sends)
    )
    return _truncated(h, sends, rho)


def tci_peak_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    rho = min(budget[k] * HYPER["threshold"] / m[k] for k in np.flatnonzero(sends))
    return _truncated(h, sends, rho)


def _truncated(h, sends, rho) -> Scalars:  # type: ignore[no-untyped-def]
    p, active = np.zeros(len(h), complex), np.zeros(len(h), bool)
    for k in np.flatnonzero(sends):
        if abs(h[k]) ** 2 >= HYPER["threshold"]:
            p[k] = math.sqrt(rho) * h[k].conjugate() / abs(h[k]) ** 2
            active[k] = True
    return p, rho, active


def gbma_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    energy = min(budget[k] / m[k] for k in np.flatnonzero(sends))
    p = np.where(sends, math.sqrt(energy) * np.exp(-1j * np.angle(h)), 0.0)
    root = math.sqrt(gain[0]) * (math.sqrt(math.pi) / 2 if linear else 1.0)
    return p, energy * root**2, sends


def cotaf_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    alpha = min(budget[k] / m[k] for k in np.flatnonzero(sends))
    active = sends & (abs(h) >= HYPER["h_min"])
    p = np.where(active, math.sqrt(alpha) * HYPER["h_min"] / h, 0.0)
    return p, alpha * HYPER["h_min"] ** 2, active


def cao_static_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    order = sorted(np.flatnonzero(sends), key=lambda k: quality(h[k], budget[k], m[k]))
    root, top, bottom = math.inf, N, 0.0
    for k in order:
        q = quality(h[k], budget[k], m[k])
        top, bottom = top + m[k] * q, bottom + m[k] * math.sqrt(q)
        root = min(root, top / bottom)
    p = np.zeros(len(h), complex)
    for k in order:
        amplitude = min(math.sqrt(budget[k] / m[k]), root / abs(h[k]))
        p[k] = amplitude * np.exp(-1j * np.angle(h[k]))
    return p, root**2, sends


def smcv_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    beta, there = HYPER["variation"], np.flatnonzero(sends)
    root_q, root_m = np.sqrt(quality(h, budget, m))[there], np.sqrt(m)[there]

    def deviations(s: float) -> np.ndarray:
        """d of least beta sum d^2 + (sum d)^2: the capped ones at their caps, in order of these,
        as long as the others' common value is above."""
        cap = root_m * (root_q * s - 1)
        order = np.argsort(cap)
        for capped in range(len(cap) + 1):
            value = -cap[order[:capped]].sum() / (beta + len(cap) - capped)
            if capped == len(cap) or cap[order[capped]] >= value:
                break
        return np.minimum(cap, value)

    def objective(s: float) -> float:
        d = deviations(s)
        return float(beta * (d**2).sum() + d.sum() ** 2 + (1 + beta) * N * s**2)

    top = 1 / root_q.min()
    found = optimize.minimize_scalar(
        objective, bounds=(1e-6 * top, top), method="bounded", options={"xatol": 1e-13 * top}
    )
    c = 1 + deviations(found.x) / root_m
    p = np.zeros(len(h), complex)
    p[there] = c / found.x / h[there]
    return p, found.x**-2, sends


def blind_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    there = np.flatnonzero(sends)
    amplitude = math.sqrt(min(budget[k] / m[k] for k in there))
    beta = sum(gain[k] for k in there) / len(there)
    root = ANTENNAS * amplitude * beta / abs(sum(h[k] for k in there))
    return np.where(sends, amplitude, 0.0).astype(complex), root**2, sends


def open_loop_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    p, top, bottom = np.zeros(len(h), complex), N, 0.0
    for k in np.flatnonzero(sends):
        path_loss_db = -10 * math.log10(gain[k])
        power_db = min(10 * math.log10(budget[k]), HYPER["p0_db"] + HYPER["alpha"] * path_loss_db)
        amplitude = math.sqrt(10 ** (power_db / 10) / m[k])
        p[k] = amplitude * np.exp(-1j * np.angle(h[k]))
        top += m[k] * (amplitude * abs(h[k])) ** 2
        bottom += m[k] * amplitude * abs(h[k])
    return p, (top / bottom) ** 2, sends


def budget_paced_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    """Of a slot of its own, the first: 0.75 of full power at most."""
    paced = np.minimum(1.0, 10 ** (HYPER["energy_db"] / 10) * HYPER["burst"]) * budget
    there = sorted(np.flatnonzero(sends), key=lambda k: -quality(h[k], paced[k], m[k]))
    eta, least = 1.0, math.inf
    for heard in range(1, len(there) + 1):
        level = quality(h[there[heard - 1]], paced[there[heard - 1]], m[there[heard - 1]])
        on, off = there[:heard], there[heard:]
        ratio = len(there) / heard
        error = (ratio - 1) ** 2 * m[on].sum() + m[off].sum() + ratio**2 * N / level
        if N / level <= m[on].sum() and error < least:
            eta, least = level, error
    active = np.zeros(len(h), bool)
    if least < math.inf:
        active[[k for k in there if quality(h[k], paced[k], m[k]) >= eta * (1 - 1e-12)]] = True
    return np.where(active, math.sqrt(eta) / h, 0.0), eta, active


TWINS: dict[str, tuple[PowerPolicy, Twin]] = {
    "none": (policy_of("none"), none_twin),
    "full": (policy_of("full"), full_twin),
    "ci": (policy_of("ci"), ci_twin),
    "multi_antenna_ci": (policy_of("multi_antenna_ci"), ci_twin),
    "tci": (policy_of("tci", relative=False), tci_twin),
    "tci, peak": (policy_of("tci", constraint="peak", relative=False), tci_peak_twin),
    "gbma": (policy_of("gbma"), gbma_twin),
    "cotaf": (policy_of("cotaf", relative=False), cotaf_twin),
    "cao_static": (policy_of("cao_static"), cao_static_twin),
    "smcv": (policy_of("smcv", variation=HYPER["variation"]), smcv_twin),
    "blind": (policy_of("blind"), blind_twin),
    "open_loop": (policy_of("open_loop"), open_loop_twin),
    "budget_paced": (policy_of("budget_paced"), budget_paced_twin),
    "lyapunov": (policy_of("lyapunov"), cao_static_twin),  # while its queues are empty
}
"""Every registered policy but `cao_average`, whose multipliers have tests of their own."""
