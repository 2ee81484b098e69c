"""Smallest mean squared error over fading under average power, by planned multipliers.

The result is regularised channel inversion. With a multiplier lambda_k of each device's budget, the
Lagrangian of one fading state is

    sum_k m_k (c_k - 1)^2 + N / eta + sum_k lambda_k m_k |p_k|^2.

Its minimum is at

    |p_k| = sqrt(eta) |h_k| / (g_k + eta lambda_k),
    sum_k m_k lambda_k g_k eta^2 / (g_k + eta lambda_k)^2 = N,

the paper's equations with the symbol powers m_k as weights. If sum_k m_k g_k / lambda_k <= N, all
devices are silent. The multipliers follow offline from E|p_k|^2 m_k = P_k, or lambda_k = 0 if the
power is not needed (`average_power.py`). They are planned on drawn states. In states too rare for
this plan, power is capped at the largest one possible in a state that was drawn `SEEN` times.

The m_k change from round to round and are unknown offline. Multipliers and transmit scalars are
therefore those of devices with a common symbol power, the largest m_k of the round. A
device of that power meets its budget with equality, however m_k changes over rounds, and others
stay below. The receive scaling is optimal for the actual m_k, and everything is optimal if they are
equal. The plan assumes that all devices transmit in every round. With fewer, the budget is the
average over all rounds, with those in which the device is silent.

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
from otafl.power.base import (
    TINY,
    Constraint,
    PowerPolicy,
    align_with_mmse_scaling,
    reduce_over_devices,
)

SEEN = 16
"""Number of occurrences among n drawn states at which the power of a state is bounded.

Because the mean is within the budget, such a state had at most n / SEEN budgets.
"""

NUMBERS = 1 << 16
"""Largest number of states times devices of a plan, unless that is below `ENOUGH` states."""

ENOUGH = 256
"""Smallest number of states of a plan, unless `draws` is smaller."""

Plan = tuple[Tensor, float]
"""lambda_k P_k [S, K], and the largest |p|^2 m / P."""


class CaoAverage(PowerPolicy):
    """Optimal power control under average power."""

    may_be_silent: ClassVar[bool] = True
    small: ClassVar[Mapping[str, Any]] = {"draws": 64}

    name: Literal["cao_average"] = "cao_average"
    draws: int = Field(2048, ge=64)
    """largest number of fading states on which the multipliers are planned (fewer with over 32
    devices); budgets are met on them, and within a few per cent on others"""

    @property
    def power_constraint(self) -> Constraint:
        return "average"

    def check(self, scenario: Any) -> Iterable[Problem]:
        if getattr(scenario.transport, "snr_convention", None) == "total_energy":
            yield make_problem(
                "'total_energy' does not go with power: 'cao_average', which plans for a power "
                "budget; use per_symbol",
                "transport.snr_convention",
                "power",
            )

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Plan:
        """Compute the multipliers."""
        devices = statistics.gain.shape[1]
        states = min(self.draws, max(ENOUGH, NUMBERS // devices))
        gain = statistics.draw_samples(states).abs().square().double()
        quality = (gain * statistics.budget.double()).clamp_min(MIN_SNR)  # the plan divides by it
        level = solve_multipliers(quality, statistics.noise_variance.double())
        return level.to(statistics.gain.dtype), states / SEEN

    def compute_coefficients(self, state: Plan, link: Link) -> tuple[Plan, Coefficients]:
        r"""Compute regularised channel inversion with the planned multipliers.

        Notes
        -----
        .. math::

            |p_k| = \frac{\sqrt{\eta} |h_k|}{g_k + \eta \lambda_k}
        """
        level, most = state
        active = link.eligible_mask
        quality = link.budget[:, None] * link.h.abs().double().square()  # at m = 1
        multiplier = level[:, None].expand_as(quality)
        s = inverse_scaling(
            quality, multiplier, active.to(quality.dtype), link.noise_variance[:, None]
        )
        s = s[..., None]
        share = (quality * s).sqrt() / (quality * s + multiplier).clamp_min(TINY)  # |p|, P = m = 1
        share = share.clamp_max(math.sqrt(most))
        bound = (
            link.budget.sqrt()[:, None] / reduce_over_devices(link.symbol_power, link, "max").sqrt()
        )
        amplitude = share * bound * active  # 0 where s is
        return state, align_with_mmse_scaling(link, amplitude, active & (s > 0))
