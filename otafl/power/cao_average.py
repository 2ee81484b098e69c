"""Minimise the mean squared error over fading under average power, by planned multipliers.

This is regularised channel inversion. With a multiplier lambda_k of each device's budget, the
Lagrangian of one fading state, sum_k m_k (c_k - 1)^2 + N / eta + sum_k lambda_k m_k |p_k|^2, is
least at

    |p_k| = sqrt(eta) |h_k| / (g_k + eta lambda_k),
    sum_k m_k lambda_k g_k eta^2 / (g_k + eta lambda_k)^2 = N,

the paper's equations with the symbol powers m_k as weights; where sum_k m_k g_k / lambda_k <= N,
nobody sends. The multipliers follow offline from E|p_k|^2 m_k = P_k, or lambda_k = 0 where the
power is not needed (`average_power.py`). They are planned on drawn states, which say little of
much rarer ones: in those a device is held to the power that a state could have had whose like came
up SEEN times.

m_k change from round to round and are unknown offline, so multipliers and transmit scalars are
those of devices whose symbols have a common power, the largest m_k of the round (or the mean): a
device of that power meets its budget with equality, whatever m_k do over rounds, and others stay
below. The receive scaling is the best one for the actual m_k; all is optimal when they are equal.
The plan is for all devices sending in every round; with fewer, the budget is one over all rounds,
those without the device included.

References
----------
Cao, Zhu, Xu, Huang 2020, "Optimized Power Control for Over-the-Air Computation in Fading Channels".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from otafl.core.contracts import MIN_SNR, ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.problems import Problem, make_problem
from otafl.power.average_power import inverse_scaling, solve_multipliers
from otafl.power.base import REFERENCE, Constraint, PowerPolicy, Reference
from otafl.power.scalars import (
    MAX_SCALE,
    TINY,
    align_with_mmse_scaling,
    get_transmitter_mask,
    reduce_over_devices,
)

SEEN = 16
"""A state that came up so often among the n drawn ones had at most n / SEEN budgets, as the mean is
within one."""

NUMBERS = 1 << 16
"""Most states times devices planned on, but for `ENOUGH` states."""

ENOUGH = 256

Plan = tuple[Tensor, float]
"""lambda_k P_k [S, K], and the largest |p|^2 m / P."""


class CaoAverage(PowerPolicy):
    may_be_silent: ClassVar[bool] = True
    small: ClassVar[Mapping[str, Any]] = {"draws": 64}

    name: Literal["cao_average"] = "cao_average"
    draws: int = Field(2048, ge=64)
    """most fading states that the multipliers are planned on (fewer with over 32 devices): budgets
    are met on them, and within some per cent on others"""
    reference: Reference = Field("max", description=REFERENCE)

    @property
    def power_constraint(self) -> Constraint:
        return "average"

    def check(self, scenario: Any) -> Iterable[Problem]:
        if getattr(scenario.transport, "snr_convention", None) == "total_energy":
            yield make_problem(
                "'total_energy' does not go with power: 'cao_average', which plans for a budget on "
                "the power; per_symbol would do",
                "transport.snr_convention",
                "power",
            )

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Plan:
        """Return the multipliers."""
        devices = statistics.gain.shape[1]
        states = min(self.draws, max(ENOUGH, NUMBERS // devices))
        gain = statistics.draw_samples(states).abs().square().double()
        quality = (gain * statistics.budget.double()).clamp_min(MIN_SNR)  # the plan divides by it
        level = solve_multipliers(quality, statistics.noise_variance.double())
        return level.to(statistics.gain.dtype), states / SEEN

    def compute_coefficients(self, state: Plan, link: Link) -> tuple[Plan, Coefficients]:
        level, most = state
        active = get_transmitter_mask(link)
        quality = link.budget[:, None] * link.h.abs().square()  # at m = 1
        multiplier = level[:, None].expand_as(quality)
        s = inverse_scaling(
            quality, multiplier, active.to(quality.dtype), link.noise_variance[:, None]
        )
        s = s[..., None]
        share = (quality * s).sqrt() / (quality * s + multiplier).clamp_min(TINY)  # |p|, P = m = 1
        share = share.clamp_max(math.sqrt(most))
        bound = (
            link.budget.sqrt()[:, None]
            / reduce_over_devices(link.symbol_power, link, self.reference).sqrt()
        )
        amplitude = share * bound.clamp_max(MAX_SCALE) * active  # 0 where s is
        return state, align_with_mmse_scaling(link, amplitude, active & (s > 0))
