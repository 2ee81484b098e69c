"""Trade-off of squared error and energy by virtual queues with average bounds.

The policy minimises the squared error under a bound e_bar on each device's average energy, without
knowing the channel's statistics. With energies e_k in slots at full power, a virtual queue counts
by how much a device exceeds its bound,

    Q_k <- max(Q_k + e_k - e_bar_k, 0).                                                         (1)

Every slot minimises V MSE + sum_k Q_k e_k over the scalars within peak power, with, for K
transmitters,

    MSE = [sum_k m_k (sqrt(q_k / eta) a_k - 1)^2 + N / eta] / m,   m = sum_k m_k / K,   e_k = a_k^2.

Here a_k in 0 to 1 is a device's fraction of its full amplitude, and q_k = P_k g_k / m_k. This is
the problem of a fading state in `cao_average`, with multipliers Q_k m / V and a peak constraint.
With u = 1 / eta, x_k = sqrt(u q_k) and the price mu_k = Q_k m / (V m_k), the optimal fraction is

    a_k = min(1, x_k / (x_k^2 + mu_k)),                                                         (2)

regularised inversion. The remaining error is convex in u for each device, so u is the root of a
decreasing function, which bisection finds:

    sum_k m_k G_k(u) = N,   G_k = a_k (1 - x_k a_k) q_k / x_k.                                  (3)

If the left side is below N at u = 0, all devices are silent.

Because 4 a_k^2 mu_k <= 1, a device with Q_k > r V / (4 e_bar), r the largest m_k / m, spends less
than e_bar. So no queue exceeds r V / (4 e_bar) + 1, and over T slots

    sum_t e_k / T <= e_bar + (r V / (4 e_bar) + 1) / T.                                         (4)

The average error is within O(1 / V) of the minimum under the bounds if channels are independent
over slots (section 4.1).

A call is one group of a slot's payload. Its energy is charged at once, and its part of e_bar is
subtracted. Slots without transmitters in a trial do not count.

References
----------
Neely 2010, "Stochastic Network Optimization with Application to Communication and Queueing
    Systems".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.power.base import PowerPolicy
from otafl.power.scalars import TINY, cophase, get_segment_lengths, get_transmitter_mask

STEPS = 25
"""Bisections, to 140 / 2^25 of u; the final chord squares that accuracy."""

DEPTH = 140.0
"""Search range: the root is at least exp(-140) of the largest possible u."""


class Lyapunov(PowerPolicy):
    """Drift plus penalty under an average energy bound. Page: docs/energy_policies.md."""

    may_be_silent: ClassVar[bool] = True
    plans_slots: ClassVar[bool] = True
    example_without_noise: ClassVar[Mapping[str, Any]] = {"average_db": 0.0}

    name: Literal["lyapunov"] = "lyapunov"
    v: float = declare_stackable(3.0, ge=1e-30, le=1e30)
    """V, weight of the squared error (relative to the devices' mean symbol power): a larger one
    reduces the error, and the average energy converges later"""
    average_db: Decibels = declare_stackable(-3.0, le=0)
    """bound on a device's average energy per slot in dB, relative to a slot at full power"""

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Tensor:
        """Return empty queues Q, [S, K] float64."""
        return torch.zeros_like(statistics.budget, dtype=torch.float64)

    def compute_coefficients(self, state: Tensor, link: Link) -> tuple[Tensor, Coefficients]:
        r"""Compute regularised inversion by eq. (2), and update the queues by eq. (1).

        Notes
        -----
        .. math::

            a_k = \min \left( 1, \frac{x_k}{x_k^2 + \mu_k} \right), \quad
            Q_k \leftarrow \max(Q_k + e_k - \bar e_k, 0)
        """
        lengths, symbols = get_segment_lengths(link)
        part = lengths / symbols  # of the slot, [Q]
        there = get_transmitter_mask(link)
        most = torch.ones_like(state)  # share of full power that the battery allows
        if link.energy_budget is not None:
            most = (link.energy_budget.double() / (symbols * link.budget)).clamp_max(1.0)
        m = torch.where(there, link.symbol_power.double(), 0.0).clamp_min(TINY)
        total = (m * there).sum(-1, keepdim=True).clamp_min(TINY)
        weight = m * there / total
        bound = (most * link.budget)[:, None] / m
        reach = bound.sqrt() * link.h.abs().double() * there
        v = link.hyper["v"].double()[:, None, None]
        count = there.sum(-1, keepdim=True).clamp_min(1)
        price = (state * most)[:, None] * total / (count * v * m)
        u = inverse_scaling(
            reach, price, weight, link.noise_variance.double()[:, None] / total[..., 0]
        )
        x = u.sqrt()[..., None] * reach
        share = (x / (x.square() + price).clamp_min(TINY)).clamp_max(1.0)  # eq. (2)
        share = torch.where(there, share, 0.0)
        spent = (share.square() * part[:, None]).sum(1) * most
        average = db_to_linear(link.hyper["average_db"].double())[:, None]  # e_bar
        owed = average * part.sum()
        queue = (state + spent - owed).clamp_min(0.0)  # eq. (1)
        queue = torch.where(link.transmit_mask.any(1)[:, None], queue, state)
        eta = torch.where(u > 0, u.reciprocal(), 1.0)
        active = there & (u > 0)[..., None] & (share > 0)
        return queue, Coefficients(cophase(share * bound.sqrt(), link.h), eta, active)


def inverse_scaling(reach: Tensor, price: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    """Compute u = 1 / eta of eq. (3) by bisection.

    Parameters
    ----------
    reach : Tensor, float64 [..., K]
        sqrt(q) of the devices.
    price : Tensor, float64 [..., K]
        Prices mu.
    weight : Tensor, float64 [..., K]
        Symbol powers m over their sum.
    noise : Tensor, float64 [...]
        Noise variance N over the sum of the symbol powers.

    Returns
    -------
    Tensor, float64 [...]
        u; 0 if all devices are silent.
    """
    high = -(4.0 * noise).log()  # because G_k <= 1 / (4 u)
    low = high - DEPTH
    silent = _compute_derivative(low, reach, price, weight) <= noise
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        above = _compute_derivative(middle, reach, price, weight) > noise
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    before, after = (_compute_derivative(end, reach, price, weight) for end in (low, high))
    chord = (before - noise) / (before - after).clamp_min(torch.finfo(noise.dtype).tiny)
    root = (low + (high - low) * chord.clamp(0.0, 1.0)).exp()
    return torch.where(silent, 0.0, root)


def _compute_derivative(log_u: Tensor, reach: Tensor, price: Tensor, weight: Tensor) -> Tensor:
    """Compute the left side of eq. (3), [...]."""
    x = (log_u / 2.0).exp()[..., None] * reach
    rest = (x.square() + price).clamp_min(TINY)
    share = (x / rest).clamp_max(1.0)
    missing = torch.where(share < 1.0, price / rest, 1.0 - x)  # 1 - x share
    fall = share * missing * reach / x.clamp_min(TINY) * reach  # G_k
    return (weight * fall).sum(-1)
