"""Reference formulas of power control, in NumPy and independent of `otafl.power`.

For each policy they give the gains c and the receive scaling eta that it should choose, from the
channels alone. Optima that the policies solve for are found here by bisection, as the zero of a
derivative.

K devices send symbols of mean power m_k over gains g_k = |h_k|^2 with budgets P_k on |p_k|^2 m_k,
q_k = P_k g_k / m_k, N is the noise variance of one received real, and

    MSE = (1/K^2) [ sum_k m_k (c_k - 1)^2 + N / eta ].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

BISECTIONS = 60
"""Number of bisections that find a zero to rounding."""


@dataclass(frozen=True)
class States:
    """Fading states.

    Parameters
    ----------
    h : ndarray, complex128 [T, K]
        Scalar channels.
    m, budget, gain : ndarray, float64 [T, K]
        Symbol powers, power budgets and large-scale gains.
    noise : ndarray, float64 [T]
        Noise variance.
    antennas : int
        Number of antennas A.
    config : PowerPolicy
        Settings of the policy.
    linear : bool
        Whether the mean of the gains is to be one, or otherwise that of their squares.
    """

    h: np.ndarray
    m: np.ndarray
    budget: np.ndarray
    gain: np.ndarray
    noise: np.ndarray
    antennas: int
    config: Any
    linear: bool = True

    @property
    def root_q(self) -> np.ndarray:
        """Amplitudes sqrt(q_k)."""
        return np.abs(self.h) * np.sqrt(self.budget / self.m)


@dataclass(frozen=True)
class Scalars:
    """Gains and receive scaling.

    Parameters
    ----------
    c : ndarray, float64 [T, K]
        Effective gains, 0 for silent devices.
    eta : ndarray, float64 [T]
        Receive scaling.
    active : ndarray, bool [T, K]
        Mask of the devices that transmit.
    """

    c: np.ndarray
    eta: np.ndarray
    active: np.ndarray


Rule = Callable[[States], Scalars]


def compute_error(scalars: Scalars, m: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Compute the mean squared error per coordinate, about the mean over the active devices.

    Parameters
    ----------
    scalars : Scalars
        Gains c, receive scaling eta and active devices.
    m : ndarray, [T, K]
        Symbol powers of independent symbols.
    noise : ndarray, [T]
        Noise variance N.

    Returns
    -------
    ndarray, [T]
        MSE of the module's equation for the K_a active devices, infinite if all are silent.
    """
    on_air = scalars.active.sum(1)
    total = (m * (scalars.c - 1.0) ** 2 * scalars.active).sum(1) + noise / scalars.eta
    return np.where(on_air > 0, total / np.maximum(on_air, 1) ** 2, np.inf)


def _build_scalars(c: np.ndarray, eta: np.ndarray) -> Scalars:
    return Scalars(c, eta, np.ones_like(c, dtype=bool))


def _least_error(root_q: np.ndarray, states: States) -> Scalars:
    """Compute the receive scaling of least error for devices that arrive with sqrt(q_k)."""
    energy = (states.m * root_q**2).sum(1) + states.noise
    root = energy / (states.m * root_q).sum(1)
    return _build_scalars(root_q / root[:, None], root**2)


def full_reference(states: States) -> Scalars:
    """Transmit |p_k| = sqrt(P_k / m_k) and receive by sqrt(eta) = (N + sum m q) / sum m sqrt(q)."""
    return _least_error(states.root_q, states)


def open_loop(states: States) -> Scalars:
    """Transmit with power min(P_k, P_0 / gain_k^alpha), and receive with the least error."""
    target = 10.0 ** (states.config.p0_db / 10.0) * states.gain**-states.config.alpha
    power = np.minimum(states.budget, target)
    return _least_error(np.abs(states.h) * np.sqrt(power / states.m), states)


def ci_reference(states: States) -> Scalars:
    """Invert to c_k = 1, eta = min_k q_k."""
    return _build_scalars(np.ones_like(states.m), (states.root_q**2).min(1))


def genie_reference(states: States) -> Scalars:
    """Set c_k = 1 at the received power of the average device."""
    received = (states.budget * np.abs(states.h) ** 2).mean(1)
    return _build_scalars(np.ones_like(states.m), received / states.m.mean(1))


def tci_reference(states: States) -> Scalars:
    """Invert to c_k = 1 if g_k >= g_th, which is relative to the mean gain with `relative`.

    rho follows from E1(g_th / beta), with the largest m_k at its budget, or from g_th itself for a
    budget on the peak.
    """
    least = states.config.threshold * _reference(states)
    cost = special.exp1(least / states.gain) / states.gain
    if states.config.constraint == "peak":
        cost = 1.0 / least
    active = np.abs(states.h) ** 2 >= least
    eta = 1.0 / (states.m * cost / states.budget).max(1)
    return Scalars(active.astype(float), eta, active)


def cotaf_reference(states: States) -> Scalars:
    """Invert to c_k = 1 if |h_k| >= h_min; eta = alpha h_min^2, alpha = min_k P_k / m_k.

    With `relative`, h_min is relative to the root of the mean large-scale gain.
    """
    h_min = states.config.h_min or 0.1  # the default over fading
    least = h_min * np.sqrt(_reference(states))
    active = np.abs(states.h) >= least
    eta = (states.budget / states.m).min(1) * least[:, 0] ** 2
    return Scalars(active.astype(float), eta, active)


def _reference(states: States) -> np.ndarray:
    """Return the gain [T, 1] to which a threshold is relative."""
    mean = states.gain.mean(1, keepdims=True)
    return mean if states.config.relative else np.ones_like(mean)


def gbma_reference(states: States) -> Scalars:
    """Transmit |p_k| = sqrt(E), E = min_k P_k / m_k.

    sqrt(eta) = sqrt(E) E|h|, with E|h| = sqrt(pi beta) / 2, or sqrt(E E|h|^2).
    """
    energy = (states.budget / states.m).min(1)
    mean = (np.sqrt(states.gain) * (math.sqrt(math.pi) / 2.0 if states.linear else 1.0)).mean(1)
    return _build_scalars(np.abs(states.h) / mean[:, None], energy * mean**2)


def blind_reference(states: States) -> Scalars:
    """Transmit one real amplitude sqrt(E) from all devices.

    sqrt(eta) = A beta sqrt(E) / |sum_k h_ka| over the antennas, which is sum_k f^H h_k.
    """
    energy = (states.budget / states.m).min(1)
    root = states.antennas * states.gain.mean(1) * np.sqrt(energy) / np.abs(states.h.sum(1))
    return _build_scalars(states.h.real * (np.sqrt(energy) / root)[:, None], root**2)


def cao_static_reference(states: States) -> Scalars:
    """Minimise sum m (c - 1)^2 + N / eta with c_k <= sqrt(q_k / eta), convex in 1 / sqrt(eta)."""
    reach = states.root_q

    def gains(s: np.ndarray) -> np.ndarray:
        return np.minimum(1.0, s[:, None] * reach)

    def slope(s: np.ndarray) -> np.ndarray:
        return (states.m * (gains(s) - 1.0) * reach).sum(1) + states.noise * s

    s = _find_zero(slope, np.zeros(len(reach)), 1.0 / reach.min(1))
    return _build_scalars(gains(s), s**-2.0)


def smcv_reference(states: States) -> Scalars:
    """Minimise beta sum d^2 + (sum d)^2 + (1 + beta) N / eta, d = sqrt(m) (c - 1), same bounds.

    Given eta, devices below their bounds share d = -sum d / beta. The bounds of the others have the
    slope beta d + sum d.
    """
    reach, root_m, beta = states.root_q, np.sqrt(states.m), states.config.variation

    def deviations(s: np.ndarray) -> np.ndarray:
        top = root_m * (s[:, None] * reach - 1.0)
        most = np.abs(top).sum(1) / beta
        t = _find_zero(lambda t: t + np.minimum(top, t[:, None]).sum(1) / beta, -most, most)
        return np.minimum(top, t[:, None])

    def slope(s: np.ndarray) -> np.ndarray:
        d = deviations(s)
        bound = np.minimum(beta * d + d.sum(1, keepdims=True), 0.0)
        return (bound * root_m * reach).sum(1) + (1.0 + beta) * states.noise * s

    s = _find_zero(slope, np.zeros(len(reach)), 2.0 / reach.min(1))
    return _build_scalars(1.0 + deviations(s) / root_m, s**-2.0)


def smcv_objective(d: np.ndarray, noise: np.ndarray, beta: float) -> np.ndarray:
    """Compute the objective [T] of deviations d [T, K] and N / eta [T]."""
    return beta * (d**2).sum(1) + d.sum(1) ** 2 + (1.0 + beta) * noise


_WRITTEN = (
    full_reference,
    ci_reference,
    genie_reference,
    tci_reference,
    cotaf_reference,
    gbma_reference,
    blind_reference,
    open_loop,
    cao_static_reference,
    smcv_reference,
)
RULES: Mapping[str, Rule] = {
    rule.__name__.removesuffix("_reference"): rule for rule in _WRITTEN
} | {
    "multi_antenna_ci": ci_reference,
    "genie": genie_reference,
}


def _find_zero(
    rising: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Find the zero of a function of [T], increasing in each element, between low and high."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        above = rising(middle) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2.0


def wrong_vote_probability(right: float, wrong: float, antennas: int) -> float:
    r"""Compute the probability that a majority vote by energy is wrong.

    Parameters
    ----------
    right, wrong : float
        Mean energies of the right and the wrong channel use.
    antennas : int
        Number of antennas A.

    Returns
    -------
    float
        Probability that A exponential energies of mean `wrong` exceed those of mean `right`.

    Notes
    -----
    .. math:: I_x(A, A), \qquad x = \mathrm{wrong} / (\mathrm{right} + \mathrm{wrong})

    with the regularised incomplete beta function I.
    """
    return float(stats.beta.cdf(wrong / (right + wrong), antennas, antennas))


def energy_variance(x: np.ndarray, a: float, antennas: int) -> float:
    """Compute the variance of an energy difference under Rayleigh fading.

    Parameters
    ----------
    x : ndarray, [K]
        Values of the devices.
    a : float
        Energy of a value of one.
    antennas : int
        Number of antennas A.

    Returns
    -------
    float
        Variance of (e+ - e-) / (a A), with noise of energy one.
    """
    plus, minus = np.maximum(x, 0.0).sum(), np.maximum(-x, 0.0).sum()
    return float(((a * plus + 1.0) ** 2 + (a * minus + 1.0) ** 2) / (a**2 * antennas))


def detection_probability(words: int, deviation: float) -> float:
    """Compute the probability that the largest of M correlations is the sent one.

    One of them is 1 and the others 0, all with normal noise of a standard deviation.
    """
    grid = np.linspace(1.0 / deviation - 10.0, 1.0 / deviation + 10.0, 20_001)
    density = stats.norm.pdf(grid - 1.0 / deviation) * stats.norm.cdf(grid) ** (words - 1)
    return float(np.trapezoid(density, grid))


def rounded_variance(deviation: float) -> float:
    r"""Compute the mean square of a normal number that is rounded to an integer.

    Parameters
    ----------
    deviation : float
        Standard deviation s of the number, whose mean is zero.

    Returns
    -------
    float
        V(s) = E[round(z)^2].

    Notes
    -----
    .. math:: V(s) = \sum_{n \ge 1} (2 n - 1) \, 2 Q\!\left( \frac{n - 1/2}{s} \right)
    """
    n = np.arange(1, 10 + math.ceil(10.0 * deviation))
    return float(((2 * n - 1) * 2.0 * stats.norm.sf((n - 0.5) / deviation)).sum())
