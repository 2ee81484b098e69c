"""Computes plainly a device of pFedBayes (Zhang et al. 2022, Algorithm 1), float64: a distribution
over models is a mean and a rho vector. Minibatches and normal numbers are arguments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from twins.exchange import loss_and_slope
from twins.network import Array, Minibatch


def deviation(rho: Array) -> Array:
    return np.array([np.log(1.0 + np.exp(r)) for r in rho])


def device(
    q: tuple[Array, Array],
    w: tuple[Array, Array],
    widths: Sequence[int],
    batches: list[Minibatch],
    noise: list[list[Array]],
    samples: int,
    zeta: float,
    rate: float,
    own_rate: float,
) -> tuple[tuple[Array, Array], tuple[Array, Array], float]:
    """Return q and the device's copy of w after a round, and the mean loss of the drawn models.
    noise: [minibatch][step]."""
    (mu, rho), (w_mu, w_rho), weight = q, w, zeta / samples
    total, count = 0.0, 0
    for batch, draws in zip(batches, noise, strict=True):
        w_sigma = deviation(w_rho)
        for g in draws:
            sigma = deviation(rho)
            loss, slope = loss_and_slope(mu + sigma * g, widths, batch)
            by_mu = slope + weight * (mu - w_mu) / w_sigma**2
            by_sigma = slope * g + weight * (sigma / w_sigma**2 - 1.0 / sigma)
            by_rho = by_sigma * np.exp(rho) / (1.0 + np.exp(rho))
            mu, rho = mu - own_rate * by_mu, rho - own_rate * by_rho
            total, count = total + loss, count + 1
        sigma = deviation(rho)
        by_mu = weight * (w_mu - mu) / w_sigma**2
        by_sigma = weight * (1.0 / w_sigma - (sigma**2 + (mu - w_mu) ** 2) / w_sigma**3)
        by_rho = by_sigma * np.exp(w_rho) / (1.0 + np.exp(w_rho))
        w_mu, w_rho = w_mu - rate * by_mu, w_rho - rate * by_rho
    return (mu, rho), (w_mu, w_rho), total / count
