"""Power policies one trial and segment at a time, in plain loops over devices, from the
literature's formulas; and the links that they are tried on. h, gain, budget, m, sends are [K]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import optimize, special

from otafl.core import registry
from otafl.core.contracts import Coefficients, Link, PowerPolicy, Statistics

N = 0.5
HYPER = {
    "threshold": 0.3,
    "h_min": 0.6,
    "variation": 0.7,
    "alpha": 0.8,
    "p0_db": 6.0,
    "energy_db": -3.0,
    "rounds": 20.0,
    "burst": 1.5,
    "v": 5.0,
    "average_db": -6.0,
}
ANTENNAS = 3
TRIALS, SEGMENTS, DEVICES = 3, 2, 6
DRAWS = 1000

Scalars = tuple[np.ndarray, float, np.ndarray]
"""p [K], eta, active [K] of one trial and segment."""

Twin = Callable[..., Scalars]


def policy_of(name: str, **fields: Any) -> PowerPolicy:
    """A registered policy with these settings."""
    config = registry.settings("power", name)(**fields)
    policy: PowerPolicy = registry.component("power", name)(config)
    return policy


def make_link(seed: int = 0, linear: bool = True, spread: bool = True) -> Link:
    """Random channels, unequal large-scale gains of trials, m_k and budgets of trials and devices,
    some devices that do not send; float64. spread: False makes all m_k one."""
    rng = np.random.default_rng(seed)
    shape = (TRIALS, SEGMENTS, DEVICES)
    gain = rng.uniform(0.5, 2.0, (TRIALS, 1)).repeat(DEVICES, 1)
    z = rng.standard_normal((2, TRIALS, 1, DEVICES)) * math.sqrt(0.5)
    h = np.broadcast_to((z[0] + 1j * z[1]) * np.sqrt(gain)[:, None], shape)
    power = rng.uniform(0.2, 3.0, shape) if spread else np.ones(shape)
    sends = np.ones((TRIALS, DEVICES), dtype=bool)
    sends[1, 2] = sends[2, 0] = sends[2, 5] = False
    budget = np.array([[1.0], [10.0], [200.0]]) * rng.uniform(0.5, 2.0, (TRIALS, DEVICES))
    return Link(
        h=torch.from_numpy(h.copy()),
        gain=torch.from_numpy(gain),
        budget=torch.from_numpy(budget),
        power=torch.from_numpy(power),
        noise=torch.full((TRIALS,), N, dtype=torch.float64),
        sends=torch.from_numpy(sends),
        linear=linear,
        hyper={k: torch.full((TRIALS,), v, dtype=torch.float64) for k, v in HYPER.items()},
        antennas=ANTENNAS,
    )


def changed(link: Link, **fields: Any) -> Link:
    """The link with other fields."""
    return Link(**{**vars(link), **fields})


def single_precision(link: Link) -> Link:
    return changed(
        link,
        h=link.h.to(torch.complex64),
        hyper={name: value.float() for name, value in link.hyper.items()},
        **{name: vars(link)[name].float() for name in ("gain", "budget", "power", "noise")},
    )


def random_links(draws: int, devices: int, seed: int) -> Link:
    """[draws, 1, devices]: SNRs of -10 to 40 dB, budgets and symbol powers over a decade each,
    Rayleigh fading, and (but for the first device) one in eight that does not send."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((2, draws, 1, devices)) * math.sqrt(0.5)
    snr = 10 ** rng.uniform(-1, 4, (draws, 1))
    sends = rng.random((draws, devices)) > 1 / 8
    sends[:, 0] = True
    return Link(
        h=torch.from_numpy(z[0] + 1j * z[1]),
        gain=torch.ones(draws, devices, dtype=torch.float64),
        budget=torch.from_numpy(snr * 10 ** rng.uniform(-0.5, 0.5, (draws, devices))),
        power=torch.from_numpy(10 ** rng.uniform(-0.5, 0.5, (draws, 1, devices))),
        noise=torch.full((draws,), N, dtype=torch.float64),
        sends=torch.from_numpy(sends),
        linear=True,
        hyper={},
    )


def capped_errors(root: np.ndarray, link: Link) -> np.ndarray:
    """[draws] least sum m (c - 1)^2 + N / eta under |p|^2 m <= P at sqrt(eta) [draws]: whoever can
    arrive with gain one does, as |c - 1| is least at one, or else at the largest c."""
    reach = (link.budget[:, None] / link.power).sqrt() * link.h.abs()
    c = np.minimum(1.0, reach[:, 0].numpy() / root[:, None])
    m = (link.power[:, 0] * link.sends).numpy()
    return (m * (c - 1) ** 2).sum(-1) + N / root**2


def rayleigh_statistics(link: Link) -> Statistics:
    """Of independent Rayleigh fading that is known."""

    def mean_inverse(threshold: torch.Tensor) -> torch.Tensor:
        ratio = (threshold[:, None] / link.gain).double().numpy()
        return (torch.from_numpy(special.exp1(ratio)) / link.gain).to(link.gain)

    def draws(count: int) -> torch.Tensor:
        z = np.random.default_rng(99).standard_normal((2, count, *link.gain.shape))
        h = torch.from_numpy(z[0] + 1j * z[1]) * (link.gain / 2).sqrt()
        return h.to(link.h.dtype)

    return Statistics(
        gain=link.gain,
        budget=link.budget,
        noise=link.noise,
        mean_amplitude=lambda: math.sqrt(math.pi) / 2 * link.gain.sqrt(),
        mean_power=lambda: link.gain,
        mean_inverse=mean_inverse,
        draws=draws,
    )


def solve(policy: PowerPolicy, link: Link) -> Coefficients:
    state = policy.prepare(rayleigh_statistics(link), link.hyper)
    _, coefficients = policy.coefficients(state, link)
    return coefficients


def arrived(link: Link, got: Coefficients) -> torch.Tensor:
    """c [S, Q, K]."""
    return (link.h * got.p).real / got.eta.sqrt()[..., None]


def mse(root_eta: float, arrives: np.ndarray, m: np.ndarray) -> float:
    """sum m (c - 1)^2 + N / eta at the amplitudes |h p| that arrive."""
    return float((m * (arrives / root_eta - 1) ** 2).sum() + N / root_eta**2)


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
