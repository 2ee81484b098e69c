"""Long-term statistics of Rayleigh and Rician fading in closed form.

Rician fading is h = l + s, with a fixed line-of-sight part l and s ~ CN(0, scattered), so that 2
|h|^2 / scattered is non-central chi-square with two degrees of freedom. Without a line of sight it
is Rayleigh fading, and |h|^2 is exponential.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

RAYLEIGH_AMPLITUDE = math.sqrt(math.pi) / 2.0
"""E|h| of h ~ CN(0, 1)."""

_WIDTH = 12.0
_MAX_K = 1e7


def mean_amplitude(k_factor: Tensor) -> Tensor:
    r"""Compute E|h| of Rician fading with E|h|^2 = 1.

    Parameters
    ----------
    k_factor : Tensor
        K = |l|^2 / scattered, linear.

    Returns
    -------
    Tensor
        E|h|, shaped as `k_factor`.

    Notes
    -----
    .. math::

        E|h| = \sqrt{\frac{\pi}{4 (K + 1)}} L_{1/2}(-K), \quad
        L_{1/2}(-K) = e^{-K/2} [(1 + K) I_0(K/2) + K I_1(K/2)]
    """
    half = k_factor / 2.0
    laguerre = (1.0 + k_factor) * torch.special.i0e(half) + k_factor * torch.special.i1e(half)
    return (math.pi / (4.0 * (1.0 + k_factor))).sqrt() * laguerre


def rayleigh_mean_inverse(threshold: float, gain: float, error_variance: float) -> float:
    r"""Compute E[1/g; g >= threshold] of the estimated gain g of Rayleigh fading.

    Parameters
    ----------
    threshold : float
        Linear threshold, above 0.
    gain : float
        Large-scale gain.
    error_variance : float
        Variance of the estimate's error.

    Returns
    -------
    float
        The mean.

    Notes
    -----
    g is exponential with mean beta = gain (1 + error_variance), so the mean is

    .. math::

        E_1(g_{th} / \beta) / \beta
    """
    from scipy import special  # its import takes 0.1 s, and few policies need it

    beta = gain * (1.0 + error_variance)
    return float(special.exp1(threshold / beta)) / beta


def rician_mean_inverse(line: float, scattered: float, threshold: float) -> float:
    """Compute E[1/g; g >= threshold] of the gain g = |h|^2 of Rician fading.

    Parameters
    ----------
    line, scattered : float
        Power |l|^2 of the line of sight, and mean power of the scattered part.
    threshold : float
        Linear threshold, above 0.

    Returns
    -------
    float
        The mean.

    Notes
    -----
    In units of `scattered`, g has the distribution Gamma(n + 1) with n ~ Poisson(K). For Gamma(n +
    1), E[1/g; g >= t] is P(Gamma(n) >= t) / n, and E1(t) for n = 0. Above K = 1e7 g counts as
    constant, with a relative error of 1e-7.
    """
    from scipy import special

    if line > _MAX_K * scattered:
        return 1.0 / line if line >= threshold else 0.0
    k_factor, start = line / scattered, threshold / scattered
    spread = _WIDTH * math.sqrt(k_factor) + 4.0 * _WIDTH
    n = np.arange(max(1.0, math.floor(k_factor - spread)), k_factor + spread)
    share = np.exp(special.xlogy(n, k_factor) - k_factor - special.gammaln(n + 1.0))
    value = float((share * special.gammaincc(n, start) / n).sum())
    return (value + math.exp(-k_factor) * float(special.exp1(start))) / scattered
