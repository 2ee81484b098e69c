"""Differentiable functions of the uplink, for learning transmit powers and receive scalings.

Gradients flow to x, h, p and eta. Shapes may have any leading dimensions, those of a
`otafl.core.contracts.Link` (trials, segments) or a batch of fading states. Powers are in units of
the receiver's complex noise variance, so a received real has the noise variance N = 1/2.

The equations are those of Cao, Zhu, Xu, Huang 2020, "Optimized Power Control for Over-the-Air
Computation in Fading Channels". `otafl.over_the_air` passes the same gradients through the whole
transport: normalisation, combining, impairments.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import NOISE_VARIANCE, apply_combiner

__all__ = ["aggregation_mse", "apply_combiner", "effective_gains", "scale_to_budget", "superpose"]


def effective_gains(h: Tensor, p: Tensor, eta: Tensor) -> Tensor:
    """Compute the effective gains of the devices.

    Parameters
    ----------
    h : Tensor, complex [..., K]
        True scalar channels, with large-scale gain and the phases that p does not compensate.
    p : Tensor, complex [..., K]
        Transmit scalars.
    eta : Tensor [...]
        Receive scaling.

    Returns
    -------
    Tensor, [..., K]
        Effective gains c = Re(h p) / sqrt(eta).
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
    """Estimate the mean of superposed symbols.

    Parameters
    ----------
    x : Tensor [..., K, d]
        Real symbols of the devices; K w_k x_k for a mean with weights w_k that sum to one.
    h : Tensor, complex [..., K]
        True scalar channels.
    p : Tensor, complex [..., K]
        Transmit scalars.
    eta : Tensor [...]
        Receive scaling.
    noise : Tensor [..., d], optional
        Standard normal numbers z. None is a channel without noise.
    variance : Tensor [...] or float, default 1/2
        Noise variance N of a received real.

    Returns
    -------
    Tensor, [..., d]
        Estimate (sum_k c_k x_k + sqrt(N / eta) z) / K, with the effective gains c_k.
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
    """Compute the mean squared error of one symbol, E|estimate - mean|^2.

    Parameters
    ----------
    h : Tensor, complex [..., K]
        True scalar channels.
    p : Tensor, complex [..., K]
        Transmit scalars.
    eta : Tensor [...]
        Receive scaling.
    power : Tensor [..., K]
        Mean symbol powers m_k = E x_k^2.
    common : Tensor [...], optional
        Correlation E x_j x_k of any two devices, if their symbols share a part. By default the
        symbols are uncorrelated.
    variance : Tensor [...] or float, default 1/2
        Noise variance N of a received real.

    Returns
    -------
    Tensor, [...]
        Error (1/K^2) [sum_k m_k (c_k - 1)^2 + N / eta + common ((sum_k (c_k - 1))^2
        - sum_k (c_k - 1)^2)].
    """
    off = effective_gains(h, p, eta) - 1.0
    error = (power * off.square()).sum(-1) + variance / eta
    if common is not None:
        error = error + common * (off.sum(-1).square() - off.square().sum(-1))
    return error / h.shape[-1] ** 2


def scale_to_budget(share: Tensor, budget: Tensor, power: Tensor) -> Tensor:
    """Map unbounded numbers to transmit magnitudes |p_k| within the power budget.

    Parameters
    ----------
    share : Tensor [..., K]
        Unbounded numbers, whose sigmoid is the fraction of the largest magnitude.
    budget : Tensor [..., K]
        Bound P_k on |p_k|^2 m_k.
    power : Tensor [..., K]
        Mean symbol powers m_k > 0.

    Returns
    -------
    Tensor, [..., K]
        Magnitudes, at most sqrt(P_k / m_k).
    """
    return torch.sigmoid(share) * (budget / power).sqrt()
