"""Say in closed form what the long-term statistics of Rayleigh and Rician fading are.

Rice's law is that of h = l + s of a fixed line-of-sight part l and s ~ CN(0, scattered), so that
2 |h|^2 / scattered is non-central chi-square of two degrees of freedom; without a line of sight it
is Rayleigh's, and |h|^2 is exponential.
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
    """Return E|h| at E|h|^2 = 1, for K = |l|^2 / scattered: sqrt(pi / (4 (K + 1))) L_1/2(-K), with
    L_1/2(-K) = exp(-K/2) [(1 + K) I0(K/2) + K I1(K/2)]."""
    half = k_factor / 2.0
    laguerre = (1.0 + k_factor) * torch.special.i0e(half) + k_factor * torch.special.i1e(half)
    return (math.pi / (4.0 * (1.0 + k_factor))).sqrt() * laguerre


def rayleigh_mean_inverse(threshold: float, gain: float, error_variance: float) -> float:
    """Return E[1/g; g >= threshold] = E1(threshold / beta) / beta of the estimate's exponential
    gain g, of mean beta = gain (1 + error_variance)."""
    from scipy import special  # a tenth of a second, which few policies need

    beta = gain * (1.0 + error_variance)
    return float(special.exp1(threshold / beta)) / beta


def rician_mean_inverse(line: float, scattered: float, threshold: float) -> float:
    """Return E[1/g; g >= threshold > 0] of g = |h|^2, of which `line` = |l|^2 is fixed.

    g is Gamma(n + 1) distributed in units of `scattered`, n ~ Poisson(K); and E[1/g; g >= t] of a
    Gamma(n + 1) is P(Gamma(n) >= t) / n, and E1(t) for n = 0. Beyond K = 1e7 g is `line`, which
    leaves a relative 1e-7 out.
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
