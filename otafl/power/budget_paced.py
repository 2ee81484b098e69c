"""Channel inversion on a lifetime energy budget, paced over the slots; weak devices are silent.

A device k with energy B_k left and n slots ahead may spend A_k = b B_k / n in this one, where b is
the burst factor, and never more than B_k. Over L symbols its largest receive level is

    r_k = sqrt(min(P_k, A_k / L) g_k / m_k).

If sqrt(eta) <= r_k, it inverts its channel to the slot's common level, |p_k| = sqrt(eta) / |h_k|.
Otherwise it is silent. Energy that a silent or lucky device does not spend increases its A_k later,
so the truncation follows the energy that is left.

Zhu et al. invert with one threshold for all rounds, and Sun et al. schedule devices with a lifetime
energy by virtual queues. Both the pacing and the choice of the level are simpler here. Of the
levels r_k, at which the a strongest devices transmit, the policy takes the one with the smallest
squared error of the mean over all K devices, for uncorrelated symbols of equal weight:

    (K/a - 1)^2 sum_on_air m + sum_silent m + (K/a)^2 N / eta

If the sum is below the noise at every level, N / eta > sum_on_air m, all devices are silent and
keep their energy.

A call is one group of a slot's payload. It advances the slots by the group's part of the slot's
symbols, and charges |p|^2 m times its symbols. Slots without transmitters in a trial do not count.

References
----------
Zhu, Wang, Huang 2020, "Broadband Analog Aggregation for Low-Latency Federated Edge Learning".
Sun, Zhou, Niu, Gunduz 2022, "Dynamic Scheduling for Over-the-Air Federated Edge Learning With
    Energy Constraints".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.power.base import PowerPolicy
from otafl.power.scalars import (
    TINY,
    align_phases,
    get_segment_lengths,
    get_transmitter_mask,
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
    """Channel inversion on a paced energy budget. Page: docs/energy_policies.md."""

    may_be_silent: ClassVar[bool] = True
    plans_slots: ClassVar[bool] = True
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

    @property
    def is_inversion(self) -> bool:
        return True

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
        left = self._get_remaining_energy(state, link, symbols)
        allowance = self._compute_allowance(left, state.ahead, part, link)
        budget = torch.minimum(link.budget.double(), allowance / lengths.sum())
        h = link.h.abs().double()
        reach = (budget[:, None] / link.symbol_power.double().clamp_min(TINY)).sqrt() * h
        root_eta = _compute_root_eta(reach, link)
        active = get_transmitter_mask(link) & (reach >= root_eta) & (root_eta > 0)
        # if no device can transmit, any scaling is valid
        root = torch.where(root_eta > 0, root_eta, 1.0)
        amplitude = torch.where(active, invert_channel(root, link), 0.0)
        spent = (amplitude.square() * link.symbol_power * lengths[:, None]).sum(1)
        there = link.transmit_mask.any(1)
        ahead = torch.where(there, state.ahead - part, state.ahead)
        purse = EnergyState((left - spent).clamp_min(0.0), ahead)
        return purse, align_phases(link, amplitude, root, active)

    def _get_remaining_energy(self, state: EnergyState, link: Link, symbols: float) -> Tensor:
        """Return the energy left [S, K]; at a trial's first slot, the whole budget."""
        if "energy_db" not in link.hyper:
            return state.left
        slots = link.hyper["rounds"].double()
        share = db_to_linear(link.hyper["energy_db"].double())
        all_of_it = (share * slots * symbols)[:, None] * link.budget
        return torch.where((state.ahead == slots)[:, None], all_of_it, state.left)

    def _compute_allowance(self, left: Tensor, ahead: Tensor, part: Tensor, link: Link) -> Tensor:
        """Return A_k [S, K] of a group, its part of the slot's.

        After the last planned slot it is all that is left.
        """
        if link.energy_budget is not None:
            left = torch.minimum(left, link.energy_budget.double())
        if self.spend == "greedy":
            return left
        slots = torch.maximum(ahead, part)[:, None]
        return left * (link.hyper["burst"].double()[:, None] * part / slots).clamp_max(1.0)


def _compute_root_eta(reach: Tensor, link: Link) -> Tensor:
    """Return the level sqrt(eta) [S, Q, 1] of smallest error over the levels r [S, Q, K].

    It is 0 if no device should transmit.
    """
    reach = torch.where(get_transmitter_mask(link), reach, 0.0)
    level, order = reach.sort(-1, descending=True)
    m = torch.where(get_transmitter_mask(link), link.symbol_power.double(), 0.0).gather(-1, order)
    devices = link.transmit_mask.sum(1, dtype=torch.float64)[:, None, None]
    ratio = devices / torch.arange(1, m.shape[-1] + 1, device=m.device)  # K / a
    num_received = m.cumsum(-1)
    silent = num_received[..., -1:] - num_received
    noise = link.noise_variance.double()[:, None, None] / level.square().clamp_min(TINY)
    error = (ratio - 1.0).square() * num_received + silent + ratio.square() * noise
    best = torch.where(noise <= num_received, error, math.inf).argmin(-1, keepdim=True)
    worth = (noise <= num_received).any(-1, keepdim=True)
    return torch.where(worth, level.gather(-1, best), 0.0)
