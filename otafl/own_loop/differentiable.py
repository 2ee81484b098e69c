"""Offer the uplink as plain differentiable functions, for learning transmit powers and receive
scalings: gradients flow to x, h, p and eta. Shapes may have any leading dimensions, those of a
`otafl.core.contracts.Link` (trials, segments) or a batch of fading states. Powers are in units of
the receiver's complex noise variance, so that a received real has the noise N = 1/2.

The equations are those of Cao, Zhu, Xu, Huang 2020, "Optimized Power Control for Over-the-Air
Computation in Fading Channels". `otafl.over_the_air` passes the same gradients through the whole
transport: normalisation, combining, impairments."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import NOISE_VARIANCE, combined

__all__ = ["aggregation_mse", "combined", "effective_gains", "superpose", "within_budget"]


def effective_gains(h: Tensor, p: Tensor, eta: Tensor) -> Tensor:
    """Return c [..., K] = Re(h p) / sqrt(eta).

    h, p: [..., K] complex, h the true scalar channel, large-scale gain and phases that p did not
    undo included. eta: [...].
    """
    return (h * p).real / eta.sqrt()[..., None]


def superpose(
    x: Tensor,
    h: Tensor,
    p: Tensor,
    eta: Tensor,
    noise: Tensor | None = None,
    variance: Tensor | float = NOISE_VARIANCE,
) -> Tensor:
    """Return the estimate of the mean, [..., d]: Re(sum_k h_k p_k x_k + z) / (K sqrt(eta)).

    x: [..., K, d] real; for a mean under weights w_k that sum to one, K w_k x_k. h, p: [..., K]
    complex. eta: [...]. noise: [..., d] standard normal numbers, or None for a channel without
    noise; variance: [...] or a number, N.
    """
    received = (effective_gains(h, p, eta)[..., None] * x).sum(-2)
    if noise is not None:
        received = received + noise * (variance / eta).sqrt()[..., None]
    return received / x.shape[-2]


def aggregation_mse(
    h: Tensor,
    p: Tensor,
    eta: Tensor,
    power: Tensor,
    common: Tensor | None = None,
    variance: Tensor | float = NOISE_VARIANCE,
) -> Tensor:
    """Return E|estimate - mean|^2 of a symbol, [...]: (1/K^2) [sum_k m_k (c_k - 1)^2 + N / eta] for
    uncorrelated symbols of mean power m_k.

    h, p: [..., K] complex. eta: [...]. power: [..., K], m_k = E x_k^2. common: [...] E x_j x_k of
    any two devices, where symbols share a part; it adds common [(sum_k (c_k - 1))^2 - sum_k (c_k -
    1)^2]. variance: [...] or a number, N.
    """
    off = effective_gains(h, p, eta) - 1.0
    error = (power * off.square()).sum(-1) + variance / eta
    if common is not None:
        error = error + common * (off.sum(-1).square() - off.square().sum(-1))
    return error / h.shape[-1] ** 2


def within_budget(share: Tensor, budget: Tensor, power: Tensor) -> Tensor:
    """Return |p_k| [..., K] within sqrt(P_k / m_k), from unbounded numbers.

    share: [..., K], whose sigmoid is the share of it. budget: [..., K], P_k on |p_k|^2 m_k. power:
    [..., K], m_k > 0.
    """
    return torch.sigmoid(share) * (budget / power).sqrt()
