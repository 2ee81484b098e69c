"""Policies with an energy budget over many slots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.power.base import (
    TINY,
    PowerPolicy,
    align_phases,
    cophase,
    get_segment_lengths,
    invert_channel,
)


@dataclass(frozen=True)
class EnergyState:
    """Energy that devices may still spend.

    Parameters
    ----------
    left : Tensor, float64 [S, K]
        Energy left of a device's own budget, in noise variance times symbols; inf without a budget.
    ahead : Tensor, float64 [S]
        Number of slots for which it must last.
    """

    left: Tensor
    ahead: Tensor


class BudgetPaced(PowerPolicy):
    """Channel inversion on a lifetime energy budget, paced over the slots; weak devices are silent.

    A device k with energy B_k left and n slots ahead may spend A_k = b B_k / n in this one, where b
    is the burst factor, and never more than B_k. Over L symbols its largest receive level is

        r_k = sqrt(min(P_k, A_k / L) g_k / m_k).

    If sqrt(eta) <= r_k, it inverts its channel to the slot's common level, |p_k| = sqrt(eta) /
    |h_k|. Otherwise it is silent. Energy that a silent or lucky device does not spend increases its
    A_k later, so the truncation follows the energy that is left.

    Zhu et al. invert with one threshold for all rounds, and Sun et al. schedule devices with a
    lifetime energy by virtual queues. Both the pacing and the choice of the level are simpler here.
    Of the levels r_k, at which the a strongest devices transmit, the policy takes the one with the
    smallest squared error of the mean over all K devices, for uncorrelated symbols of equal weight:

        (K/a - 1)^2 sum_on_air m + sum_silent m + (K/a)^2 N / eta

    If the sum is below the noise at every level, N / eta > sum_on_air m, all devices are silent and
    keep their energy.

    A call is one group of a slot's payload. It advances the slots by the group's part of the slot's
    symbols, and charges |p|^2 m times its symbols. Slots without transmitters in a trial do not
    count.

    Page: docs/energy_policies.md.

    References
    ----------
    Zhu, Wang, Huang 2020, "Broadband Analog Aggregation for Low-Latency Federated Edge Learning".
    Sun, Zhou, Niu, Gunduz 2022, "Dynamic Scheduling for Over-the-Air Federated Edge Learning With
        Energy Constraints".
    """

    may_be_silent: ClassVar[bool] = True
    plans_slots: ClassVar[bool] = True
    is_inversion: ClassVar[bool] = True
    is_adaptive: ClassVar[bool] = False

    name: Literal["budget_paced"] = "budget_paced"
    energy_db: Decibels | None = declare_stackable(-3.0, le=0)
    """energy per slot in dB, relative to that of a slot at full power; a device has `rounds` times
    as much in total. null: only the battery bounds it"""
    rounds: int = declare_stackable(100, ge=1)
    """number of slots for which the energy must last; in later ones a device may spend all that is
    left"""
    burst: float = declare_stackable(2.0, ge=1)
    """largest energy of a slot over the even share of the energy left"""
    spend: Literal["even", "greedy"] = "even"
    """pacing of the energy: even, over the slots ahead, or greedy, as much as full power takes
    until the energy is spent"""

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> EnergyState:
        """Return the initial energies; a device's total is known at its first slot."""
        nothing_known = torch.full_like(statistics.budget, math.inf, dtype=torch.float64)
        return EnergyState(nothing_known, hyper["rounds"].double())

    def compute_coefficients(
        self, state: EnergyState, link: Link
    ) -> tuple[EnergyState, Coefficients]:
        r"""Invert the channel to the level of smallest error, within each device's allowance.

        Notes
        -----
        .. math::

            |p_k| = \sqrt{\eta} / |h_k|, \quad \sqrt{\eta} \leq
            \sqrt{\min(P_k, A_k / L) g_k / m_k}
        """
        lengths, symbols = get_segment_lengths(link)
        part = lengths.sum() / symbols  # of the slot
        left = state.left
        if "energy_db" in link.hyper:  # at a trial's first slot, the whole budget
            slots = link.hyper["rounds"].double()
            share = db_to_linear(link.hyper["energy_db"].double())
            whole = (share * slots * symbols)[:, None] * link.budget
            left = torch.where((state.ahead == slots)[:, None], whole, left)
        # A_k [S, K] of a group, its part of the slot's; it is all that is left after the last
        # planned slot
        allowance = left
        if link.energy_budget is not None:
            allowance = torch.minimum(left, link.energy_budget.double())
        if self.spend == "even":
            ahead = torch.maximum(state.ahead, part)[:, None]
            burst = link.hyper["burst"].double()[:, None]
            allowance = allowance * (burst * part / ahead).clamp_max(1.0)
        budget = torch.minimum(link.budget.double(), allowance / lengths.sum())
        h = link.h.abs().double()
        reach = (budget[:, None] / link.symbol_power.double().clamp_min(TINY)).sqrt() * h
        root_eta = _compute_root_eta(reach, link)
        active = link.eligible_mask & (reach >= root_eta) & (root_eta > 0)
        # if no device can transmit, any scaling is valid
        root = torch.where(root_eta > 0, root_eta, 1.0)
        amplitude = torch.where(active, invert_channel(root, link), 0.0)
        spent = (amplitude.square() * link.symbol_power * lengths[:, None]).sum(1)
        there = link.transmit_mask.any(1)
        ahead = torch.where(there, state.ahead - part, state.ahead)
        purse = EnergyState((left - spent).clamp_min(0.0), ahead)
        return purse, align_phases(link, amplitude, root, active)


def _compute_root_eta(reach: Tensor, link: Link) -> Tensor:
    """Return the level sqrt(eta) [S, Q, 1] of smallest error over the levels r [S, Q, K].

    It is 0 if no device should transmit.
    """
    reach = torch.where(link.eligible_mask, reach, 0.0)
    level, order = reach.sort(-1, descending=True)
    m = torch.where(link.eligible_mask, link.symbol_power.double(), 0.0).gather(-1, order)
    devices = link.transmit_mask.sum(1, dtype=torch.float64)[:, None, None]
    ratio = devices / torch.arange(1, m.shape[-1] + 1, device=m.device)  # K / a
    num_received = m.cumsum(-1)
    silent = num_received[..., -1:] - num_received
    noise = link.noise_variance.double()[:, None, None] / level.square().clamp_min(TINY)
    error = (ratio - 1.0).square() * num_received + silent + ratio.square() * noise
    best = torch.where(noise <= num_received, error, math.inf).argmin(-1, keepdim=True)
    worth = (noise <= num_received).any(-1, keepdim=True)
    return torch.where(worth, level.gather(-1, best), 0.0)


STEPS = 25
"""Bisections, to 140 / 2^25 of u; the final chord squares that accuracy."""

DEPTH = 140.0
"""Search range: the root is at least exp(-140) of the largest possible u."""


class Lyapunov(PowerPolicy):
    """Trade-off of squared error and energy by virtual queues with average bounds.

    The policy minimises the squared error under a bound e_bar on each device's average energy,
    without knowing the channel's statistics. With energies e_k in slots at full power, a virtual
    queue counts by how much a device exceeds its bound,

        Q_k <- max(Q_k + e_k - e_bar_k, 0).                                                      (1)

    Every slot minimises V MSE + sum_k Q_k e_k over the scalars within peak power, with, for K
    transmitters,

        MSE = [sum_k m_k (sqrt(q_k / eta) a_k - 1)^2 + N / eta] / m,   m = sum_k m_k / K,   e_k =
            a_k^2.

    Here a_k in 0 to 1 is a device's fraction of its full amplitude, and q_k = P_k g_k / m_k. This
    is the problem of a fading state in `cao_average`, with multipliers Q_k m / V and a peak
    constraint. With u = 1 / eta, x_k = sqrt(u q_k) and the price mu_k = Q_k m / (V m_k), the
    optimal fraction is

        a_k = min(1, x_k / (x_k^2 + mu_k)),                                                      (2)

    regularised inversion. The remaining error is convex in u for each device, so u is the root of a
    decreasing function, which bisection finds:

        sum_k m_k G_k(u) = N,   G_k = a_k (1 - x_k a_k) q_k / x_k.                               (3)

    If the left side is below N at u = 0, all devices are silent.

    Because 4 a_k^2 mu_k <= 1, a device with Q_k > r V / (4 e_bar), r the largest m_k / m, spends
    less than e_bar. So no queue exceeds r V / (4 e_bar) + 1, and over T slots

        sum_t e_k / T <= e_bar + (r V / (4 e_bar) + 1) / T.                                      (4)

    The average error is within O(1 / V) of the minimum under the bounds if channels are independent
    over slots (section 4.1).

    A call is one group of a slot's payload. Its energy is charged at once, and its part of e_bar is
    subtracted. Slots without transmitters in a trial do not count.

    Page: docs/energy_policies.md.

    References
    ----------
    Neely 2010, "Stochastic Network Optimization with Application to Communication and Queueing
        Systems".
    """

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
        there = link.eligible_mask
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
