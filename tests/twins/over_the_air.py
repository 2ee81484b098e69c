"""An over-the-air uplink device by device, in complex numbers, with policies by their formulas."""

from __future__ import annotations

import math

import numpy as np
from scipy import special


def scalars(
    policy: str,
    h: np.ndarray,
    m: np.ndarray,
    budget: float,
    linear: bool,
    inverse: float,
    variance: float = 0.0,
) -> tuple[np.ndarray, float, np.ndarray]:
    """p [K], eta, on air [K] of one trial, by the table of the policies; threshold 0.3."""
    g = np.abs(h) ** 2
    on = np.ones(len(h), dtype=bool)
    if policy == "full":
        root_q = np.sqrt(budget * g / m)
        root = (0.5 + (m * root_q**2).sum()) / (m * root_q).sum()
        return np.sqrt(budget / m) * np.exp(-1j * np.angle(h)), root**2, on
    if policy == "ci":
        eta = (budget * g / m).min()
        return math.sqrt(eta) / h, eta, on
    if policy == "tci":
        rho, on = budget / (inverse * m.max()), g >= 0.3
        return np.where(on, math.sqrt(rho) * h.conj() / g, 0), rho, on
    energy = budget / m.max()
    return (
        math.sqrt(energy) * np.exp(-1j * np.angle(h)),
        energy * (math.pi / 4 / (1 + variance) if linear else 1.0),
        on,
    )


def plain(
    policy: str,
    x: np.ndarray,
    w: np.ndarray,
    h: np.ndarray,
    h_hat: np.ndarray,
    noise: np.ndarray,
    budget: float,
    linear: bool = True,
    variance: float = 0.0,
) -> np.ndarray:
    """[P]: y = sum h p s + z with complex noise, Re, scaled; device by device."""
    k = len(x)
    s = x * (k * w / w.sum())[:, None] if linear else x
    inverse = special.exp1(0.3 / (1 + variance)) / (1 + variance)
    p, eta, on = scalars(policy, h_hat, (s**2).mean(1), budget, linear, inverse, variance)
    y = noise + 1j * np.random.default_rng(9).standard_normal(x.shape[1])
    for i in np.flatnonzero(on):
        y = y + h[i] * p[i] * s[i]
    if not linear:
        return y.real / math.sqrt(eta)
    return y.real / math.sqrt(eta) / (k * w[on].sum() / w.sum())
