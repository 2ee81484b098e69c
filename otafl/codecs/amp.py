"""Recovery of a sparse x from y = A x + noise by approximate message passing (AMP).

The algorithm has soft thresholding: Donoho, Maleki, Montanari 2009, "Message-passing algorithms for
compressed sensing", eqs. (1)-(2). A is m x n with columns of mean square norm 1. Each step sees r =
x + A^T z, which for a Gaussian A is the truth plus Gaussian noise of variance tau^2, estimated as
|z|^2 / m. The error follows state evolution:

    tau_{t+1}^2 = sigma^2 + (n/m) E[(soft(X + tau_t Z, a tau_t) - X)^2]

The best a depends on m/n, on the noise and on the sparsity of x. `compute_default_threshold` knows
only m/n. It is the minimax threshold of signals with one non-zero coordinate in ten measurements,
which minimises the error for the worst distribution of the non-zero coordinates. At one in ten the
error is within 0.2 dB of that at the best a. From one in 33 to one in two it is within 2 dB for m/n
up to 0.5, and within 4 dB above, for signals 20 dB over the noise.

References
----------
Donoho, Johnstone 1994, "Minimax risk over l_p-balls for l_q-error", Probability Theory and Related
    Fields 99: the minimax risk of soft thresholding.
Donoho, Maleki, Montanari 2011, "The Noise-Sensitivity Phase Transition in Compressed Sensing", IEEE
    Transactions on Information Theory 57: the same threshold in message passing is minimax.
"""

from __future__ import annotations

import functools

import torch
from scipy import optimize, stats
from torch import Tensor

from otafl.factorised.shrinkage import soft_threshold

LOST = 10.0
"""|y - A x| over |y| above which a recovery has diverged and stops."""

_LOOK_EVERY = 5
"""Steps between checks for divergence."""

_REALS_AT_ONCE = 2**17  # on a CPU, so that the data of a step fit the cache


NON_ZERO_PER_MEASUREMENT = 0.1
"""Non-zero coordinates per measurement for which `compute_default_threshold` is optimal."""


@functools.cache
def compute_default_threshold(measurements: int, length: int) -> float:
    """Compute the threshold a for m measurements of n coordinates.

    Parameters
    ----------
    measurements, length : int
        m and n.

    Returns
    -------
    float
        Threshold a, relative to the noise tau.
    """
    return compute_minimax_threshold(NON_ZERO_PER_MEASUREMENT * measurements / length)


def compute_minimax_threshold(share: float) -> float:
    r"""Compute the soft threshold with the smallest worst-case risk.

    Parameters
    ----------
    share : float
        Fraction of non-zero coordinates, in (0, 1).

    Returns
    -------
    float
        Threshold a, relative to the standard deviation tau of the noise.

    Notes
    -----
    With the normal distribution Phi and its density phi, the risk over tau^2 is (Donoho, Johnstone
    1994)

    .. math::

        2 (1 - s) [(1 + a^2) \Phi(-a) - a \phi(a)] + s (1 + a^2)

    for a fraction s. Its derivative is zero at

    .. math::

        s a = 2 (1 - s) [\phi(a) - a \Phi(-a)]
    """

    def slope(a: float) -> float:
        gap: float = stats.norm.pdf(a) - a * stats.norm.sf(a)
        return share * a - 2.0 * (1.0 - share) * gap

    a: float = optimize.brentq(slope, 0.0, 40.0)
    return a


def run_amp(y: Tensor, matrix: Tensor, iterations: int, a: float) -> Tensor:
    r"""Recover x from measurements by approximate message passing from x = 0.

    Parameters
    ----------
    y : Tensor, float [..., m]
        Measurements.
    matrix : Tensor, float [m, n]
        Matrix A.
    iterations : int
        Number of steps.
    a : float
        Threshold, relative to the noise.

    Returns
    -------
    Tensor, float [..., n]
        Estimate with the smallest |y - A x| of all steps. With too few measurements the steps
        diverge, and it is one of the first, which is finite.

    Notes
    -----
    With the soft threshold eta at a tau, and Onsager's term (eqs. (1)-(2) of the paper),

    .. math::

        x' = \eta(x + A^T z; a \tau), \quad z' = y - A x' + \frac{\|x'\|_0}{m} z
    """
    n = matrix.shape[1]
    rows = y.reshape(-1, y.shape[-1])
    exponent = torch.frexp(torch.linalg.vector_norm(rows, torch.inf, dim=1, keepdim=True)).exponent
    rows = torch.ldexp(rows, -exponent)  # squares of values about 1 stay in range
    at_once = max(1, _REALS_AT_ONCE // n) if y.device.type == "cpu" else max(1, len(rows))
    parts = [_recover_rows(part, matrix, iterations, a) for part in rows.split(at_once)]
    return torch.ldexp(torch.cat(parts), exponent).view(*y.shape[:-1], n)


def _recover_rows(y: Tensor, matrix: Tensor, iterations: int, a: float) -> Tensor:
    """Run AMP on rows y [b, m]; diverged rows leave the batch."""
    out = y.new_zeros(len(y), matrix.shape[1])
    x, z, best, least = out, y, out, _norm(y)
    at, limit, now = torch.arange(len(y), device=y.device), LOST * least, least
    for step in range(iterations):
        if step and step % _LOOK_EVERY == 0:
            going = (now <= limit).squeeze(1).nonzero().squeeze(1)
            if len(going) < len(at):
                out = out.index_copy(0, at, best)
                at, y, x, z = at[going], y[going], x[going], z[going]
                best, least, limit = best[going], least[going], limit[going]
            if not len(at):
                return out
        x, misfit, onsager = _step(y, x, z, matrix, a)
        z = torch.addcmul(misfit, z, onsager)
        now = _norm(misfit)
        best, least = torch.where(now < least, x, best), torch.fmin(now, least)
    return out.index_copy(0, at, best)


def _step(
    y: Tensor, x: Tensor, z: Tensor, matrix: Tensor, a: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next estimate [..., n], its misfit y - A x [..., m], and Onsager's factor."""
    m = y.shape[-1]
    tau = _norm(z) / m**0.5
    x = soft_threshold(x + z @ matrix, a * tau)
    return x, y - x @ matrix.mT, torch.linalg.vector_norm(x, 0, dim=-1, keepdim=True) / m


def _norm(rows: Tensor) -> Tensor:
    """Compute the Euclidean norms [..., 1]."""
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
