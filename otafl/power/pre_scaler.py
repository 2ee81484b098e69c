"""Inversion to individual scales that are planned on channel statistics (biased pre-scalers).

Device k sends (gamma_k / h_k) x if |h_k|^2 >= gamma_k^2 m / P_k, with m the largest symbol power of
the transmitters, and is silent otherwise. It knows its own h_k and, of the other devices, only the
mean gains Lambda. The server does not know which devices are silent either. The estimate is y /
sum_k alpha_k with the mean gain

    alpha_k = gamma_k Pr(|h_k|^2 >= gamma_k^2 m / P_k).

It contains the noise even if all are silent. Device k has the weight p_k = alpha_k / sum alpha
instead of 1 / K. Under Rayleigh fading alpha_k = gamma_k exp(-gamma_k^2 m / (Lambda_k P_k)), which
is at most sqrt(Lambda_k P_k / (2 e m)), at gamma_k^2 = Lambda_k P_k / (2 m).

The plan minimises, over gamma up to that point, bias and variance of the mean of K devices over m,

    weight K sum (p_k - 1/K)^2 + sum (p_k gamma_k / alpha - p_k^2) + N / (m alpha^2),

with alpha = sum alpha_k. The terms are the bias of devices whose updates differ by `weight` times
their power, the variance of the silence, and that of the noise. `solve_zero_bias` makes all alpha_k
equal, by default to the largest value of the weakest device, which has the least noise: the
zero-bias solution of the 2024 paper. The weakest device is then silent in 39 % of the rounds at any
SNR. `common_gain: best` is not in the papers. With t_k = gamma_k^2 m / (Lambda_k P_k) it minimises

    (sum e^t_k / K - 1) / K + N / (m K^2 alpha^2),    alpha = gamma_k e^-t_k,

which is convex in log alpha, because d t / d log alpha = 2 t / (1 - 2 t) grows with t. For other
fading the plan is that for Rayleigh fading with the same mean gains, and alpha_k uses the channel's
probability. The budget is a bound in every round. m is the largest mean power of this round's
updates, instead of a bound on it, and is side information.

References
----------
Abrar, Michelusi 2024, "Biased Over-the-Air Federated Learning under Wireless Heterogeneity", arXiv
    2403.19849.
Abrar, Michelusi 2025, "Non-Convex Over-the-Air Heterogeneous Federated Learning: A Bias-Variance
    Trade-off", arXiv 2510.26722.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy import optimize, special
from torch import Tensor

from otafl.core.contracts import MIN_SNR, ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import declare_stackable
from otafl.power.base import (
    FADED_SNR,
    TINY,
    Pair,
    PowerPolicy,
    align_phases,
    reduce_over_devices,
)


class PreScaler(PowerPolicy):
    """Biased pre-scalers. Study: `scenarios/statistical_csi.yaml`."""

    is_adaptive: ClassVar[bool] = False
    example_without_noise: ClassVar[Mapping[str, Any]] = {"zero_bias": True}

    name: Literal["pre_scaler"] = "pre_scaler"
    zero_bias: bool = False
    """whether all devices have equal weight, without bias and with more noise; weight then has no
    effect"""
    common_gain: Literal["largest", "best"] = "largest"
    """mean gain of all devices with zero_bias: the largest that the weakest device can have, for
    least noise, or the best, for the smallest squared error of noise and silence"""
    weight: float = declare_stackable(1.0, ge=0)
    """weight of the bias: mean square of the difference between a device's update and the mean of
    all, over its power; 0 plans for least variance"""

    def find_conflicts(self) -> Iterator[str]:
        if self.common_gain == "best" and not self.zero_bias:
            yield (
                "common_gain: best needs zero_bias: true, because otherwise each device has its "
                "own gain; set zero_bias: true, or leave common_gain out"
            )

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Pair:
        """Return gamma_k sqrt(m) and alpha_k sqrt(m), [S, K] each; 0 without a channel."""
        strength = (statistics.mean_power() * statistics.budget).double().cpu().numpy()
        least = np.where(strength >= MIN_SNR, strength, 0.0)
        rows = np.column_stack(
            [_to_numpy(statistics.noise_variance), _to_numpy(hyper["weight"]), least]
        )
        distinct, place = np.unique(rows, axis=0, return_inverse=True)
        plans = np.stack([self._plan(row[2:], *row[:2]) for row in distinct])[place.ravel()]
        gamma = torch.from_numpy(plans).to(statistics.gain)
        return gamma, gamma * statistics.prob_gain_above(gamma.square() / statistics.budget)

    def _plan(self, strength: np.ndarray, noise: float, weight: float) -> np.ndarray:
        """Return gamma_k sqrt(m) [K] of one trial, given Lambda_k P_k [K]."""
        on = strength > 0
        planned = np.zeros_like(strength)
        if on.any():
            if not self.zero_bias:
                planned[on] = minimise_cost(strength[on], noise, weight)
            elif self.common_gain == "best":
                planned[on] = solve_best_zero_bias(strength[on], noise)
            else:
                planned[on] = solve_zero_bias(strength[on])
        return planned

    def compute_coefficients(self, state: Pair, link: Link) -> tuple[Pair, Coefficients]:
        r"""Compute the planned pre-scalers, with silence below each device's threshold.

        Notes
        -----
        .. math::

            p_k = \gamma_k / h_k, \quad |h_k|^2 \geq \gamma_k^2 m / P_k, \quad
            \sqrt{\eta} = \frac{1}{K} \sum_k \alpha_k
        """
        gamma, alpha = (one[:, None] for one in state)
        counts = (link.transmit_mask[:, None] & (alpha > 0)).expand_as(link.symbol_power)
        sends = link.eligible_mask & counts
        sends = sends & (link.budget[:, None] * link.h.abs().square() >= gamma.square())
        scale = reduce_over_devices(link.symbol_power, link, "max").rsqrt()  # 1 / sqrt(m)
        total = (alpha * counts).sum(-1, keepdim=True)
        root_eta = scale * total / counts.sum(-1, keepdim=True).clamp_min(1)
        root_eta = torch.where(total > 0, root_eta.clamp_min(TINY), 1.0)
        amplitude = scale * gamma / link.h.abs().clamp_min(FADED_SNR)
        sent = align_phases(link, torch.where(sends, amplitude, 0.0), root_eta, counts)
        return state, Coefficients(sent.p, sent.eta, counts, silent_mask=~sends)


def solve_zero_bias(strength: np.ndarray, part: float = 1.0) -> np.ndarray:
    r"""Compute gamma with smallest power that makes all alpha equal, for m = 1.

    Parameters
    ----------
    strength : ndarray [K]
        Mean received SNR at full power, Lambda P.
    part : float
        gamma^2 of the weakest device over Lambda P / 2, above which its alpha decreases; in (0, 1].

    Returns
    -------
    ndarray [K]
        gamma.

    Notes
    -----
    With Lambert's function W,

    .. math::

        \gamma_k^2 = - \frac{\Lambda_k P_k}{2} W(-2 \alpha^2 / (\Lambda_k P_k))
    """
    alpha2 = part * strength.min() / (2.0 * math.exp(part))
    root = -special.lambertw(-2.0 * alpha2 / strength).real  # `part` of the weakest
    gamma: np.ndarray = np.sqrt(strength * np.where(strength > strength.min(), root, part) / 2.0)
    return gamma


def solve_best_zero_bias(strength: np.ndarray, noise: float) -> np.ndarray:
    r"""Compute gamma for the common alpha with the smallest squared error, for m = 1.

    Parameters
    ----------
    strength : ndarray [K]
        Mean received SNR at full power, Lambda P.
    noise : float
        Noise variance N.

    Returns
    -------
    ndarray [K]
        gamma.

    Notes
    -----
    At the optimum, with t = gamma^2 / (Lambda P),

    .. math::

        \sum_k e^{t_k} \frac{t_k}{1 - 2 t_k} = N / \alpha^2

    The left side grows with alpha from 0 without bound, and the right side decreases.
    """

    def slope(part: float) -> float:
        t = np.minimum(solve_zero_bias(strength, part) ** 2 / strength, part / 2.0)  # the weakest's
        alpha2 = part * strength.min() / (2.0 * math.exp(part))
        return float(alpha2 * (np.exp(t) * t / (1.0 - 2.0 * t)).sum() - noise)

    least, most = 1e-12, 1.0 - 1e-12
    if slope(most) <= 0.0:
        return solve_zero_bias(strength)
    part = optimize.brentq(slope, least, most, xtol=1e-15) if slope(least) < 0.0 else least
    return solve_zero_bias(strength, part)


def minimise_cost(strength: np.ndarray, noise: float, weight: float) -> np.ndarray:
    """Compute gamma with the smallest sum of bias and variance, for m = 1.

    Parameters
    ----------
    strength : ndarray [K]
        Mean received SNR at full power, Lambda P.
    noise : float
        Noise variance N.
    weight : float
        Weight of the bias.

    Returns
    -------
    ndarray [K]
        gamma.
    """
    top = np.sqrt(strength / 2.0)

    def cost(part: np.ndarray) -> tuple[float, np.ndarray]:
        gamma = part * top
        share = np.exp(-(gamma**2) / strength)
        alpha, slope = gamma * share, share * (1.0 - part**2)
        total, spread = alpha.sum(), weight * len(top) - 1.0
        over = spread * alpha @ alpha + alpha @ gamma + noise
        rise = 2.0 * spread * alpha * slope + slope * gamma + alpha
        gradient = rise / total**2 - 2.0 * slope * over / total**3
        return over / total**2, gradient * top

    starts = (np.ones_like(top), solve_zero_bias(strength) / top)
    found = [
        optimize.minimize(
            cost, start, jac=True, method="L-BFGS-B", bounds=[(1e-6, 1.0)] * len(top),
            options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 1000, "maxcor": 20},
        )
        for start in starts
    ]  # fmt: skip
    best = min(found, key=lambda one: float(one.fun))
    gamma: np.ndarray = best.x * top
    return gamma


def _to_numpy(values: Tensor) -> np.ndarray:
    """Return numbers [S] on the host, in double precision."""
    numbers: np.ndarray = values.detach().double().cpu().numpy()
    return numbers
