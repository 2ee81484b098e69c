"""Smallest mean squared error over fading under average power, by planned multipliers.

The result is regularised channel inversion. With a multiplier lambda_k of each device's budget, the
Lagrangian of one fading state is

    sum_k m_k (c_k - 1)^2 + N / eta + sum_k lambda_k m_k |p_k|^2.

Its minimum is at

    |p_k| = sqrt(eta) |h_k| / (g_k + eta lambda_k),
    sum_k m_k lambda_k g_k eta^2 / (g_k + eta lambda_k)^2 = N,

the paper's equations with the symbol powers m_k as weights. If sum_k m_k g_k / lambda_k <= N, all
devices are silent. The multipliers follow offline from E|p_k|^2 m_k = P_k, or lambda_k = 0 if the
power is not needed (`solve_multipliers`). They are planned on drawn states. In states too rare for
this plan, power is capped at the largest one possible in a state that was drawn `SEEN` times.

The m_k change from round to round and are unknown offline. Multipliers and transmit scalars are
therefore those of devices with a common symbol power, the largest m_k of the round. A device of
that power meets its budget with equality, however m_k changes over rounds, and others stay below.
The receive scaling is optimal for the actual m_k, and everything is optimal if they are equal. The
plan assumes that all devices transmit in every round. With fewer, the budget is the average over
all rounds, with those in which the device is silent.

References
----------
Cao, Zhu, Xu, Huang 2020, "Optimized Power Control for Over-the-Air Computation in Fading Channels".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import MIN_SNR, ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.problems import Problem, make_problem
from otafl.power.base import (
    TINY,
    Constraint,
    PowerPolicy,
    align_with_mmse_scaling,
    compute_threshold,
    reduce_over_devices,
)

STATE_STEPS = 12
"""Newton steps in a fading state.

Eight give the last bit with multipliers over eight decades.
"""

NEAR_STEPS = 4
"""Newton steps from the solution for similar multipliers.

The first step may pass the root, the others do not.
"""

DUAL_STEPS = 60
"""Largest number of steps of the interior-point method, which needs 10 to 40."""

GRADIENT_STEPS = 8
"""Steps of conjugate gradients in each Newton system; after diagonal preconditioning, one direction
dominates."""

TOLERANCE = 1e-9
"""Relative deviation from the budgets on the states of the plan."""

NUMBERS = 1 << 17
"""Largest number of states times trials times devices at a time, which fits a processor's cache."""

UNUSED = 1e-6
"""Multiplier over the usual price below which it is zero: the budget is not needed."""

_SMALL = 1e-300


def inverse_scaling(
    quality: Tensor,
    multiplier: Tensor,
    weight: Tensor,
    noise: Tensor,
    near: Tensor | None = None,
) -> Tensor:
    r"""Compute s = 1 / eta in each fading state by Newton's method.

    Parameters
    ----------
    quality, multiplier, weight : Tensor, float [..., K]
        q, l and w of the devices.
    noise : Tensor, float [...]
        Noise variance N.
    near : Tensor, float [...], optional
        s of similar multipliers, from which a few steps suffice.

    Returns
    -------
    Tensor, float [...]
        s; 0 if all devices are silent.

    Notes
    -----
    Numbers are dimensionless: q_k = P_k g_k, l_k = lambda_k P_k. s solves

    .. math::

        G(s) = \sum_k \frac{w_k l_k q_k}{(q_k s + l_k)^2} = N

    Because G^(-1/2) is a power mean of linear functions of s, it is concave, and Newton's steps
    from s = 0 never pass the root.
    """
    on = multiplier > 0  # a device with multiplier 0 inverts at any s, and is not in the equation
    q, w = torch.where(on, quality, 0.0), torch.where(on, weight, 0.0)
    multiplier = torch.where(on, multiplier, 1.0)
    top, tiny = w * multiplier * q, torch.finfo(q.dtype).tiny
    s = torch.zeros_like(quality[..., 0]) if near is None else near
    for _ in range(STATE_STEPS if near is None else NEAR_STEPS):
        y = (q * s[..., None]).add_(multiplier)
        term = top / y.square()
        value, slope = term.sum(-1), term.mul_(q).div_(y).sum(-1)
        step = value * ((value / noise).sqrt() - 1.0) / slope.clamp_min(tiny)
        s = (s + step).clamp_min(0.0)
    return s


def solve_multipliers(quality: Tensor, noise: Tensor) -> Tensor:
    """Compute multipliers l with which every device meets its budget on average.

    Parameters
    ----------
    quality : Tensor, float64 [n, S, K]
        q of n equally likely states.
    noise : Tensor, float64 [S]
        Noise variance N.

    Returns
    -------
    Tensor, float64 [S, K]
        l, such that mean u_k = 1, or l_k = 0 and mean u_k <= 1, where u_k = q_k s / (q_k s + l_k)^2
        is a device's power over its budget.

    Notes
    -----
    The multipliers maximise the dual function, which is the mean over states of the smallest
    Lagrangian minus sum_k l_k. It is concave, with gradient mean(u_k) - 1 and a Hessian of a
    diagonal and one rank for each state. A primal-dual interior-point method keeps l_k >= 0.
    Conjugate gradients solve its Newton systems, so that memory and time grow with states times
    devices.
    """
    states, _, devices = quality.shape
    together = max(1, NUMBERS // (states * devices))
    parts = zip(quality.split(together, 1), noise.split(together), strict=True)
    return torch.cat([_solve_multipliers(*part) for part in parts])


def _solve_multipliers(quality: Tensor, noise: Tensor) -> Tensor:
    """Compute l [S, K] by a primal-dual interior-point method."""
    level, price = _start(quality.mean(0), noise)
    slack = torch.full_like(level, 0.3)  # 1 - mean u, a separate variable until convergence
    weight, square = torch.ones_like(level), quality.square()
    s = None
    for _ in range(DUAL_STEPS):
        s = inverse_scaling(quality, level, weight, noise, s)
        received = quality * s[..., None]
        y = received + level
        used = received / y.square()
        excess = used.mean(0) - 1.0
        unmet = torch.maximum(excess, torch.minimum(excess.abs(), level / price))
        if bool((unmet < TOLERANCE).all()):
            break
        # second derivatives of the smallest Lagrangian of a state: in l, and through s
        cube = y**3
        diagonal = (2.0 * used / y).mean(0)
        bend = (2.0 * level * square / cube).sum(-1, keepdim=True)
        through = quality * (y - 2.0 * level) / cube / bend.clamp_min(_SMALL).sqrt()
        through = torch.where(s[..., None] > 0, through, 0.0)
        barrier = 0.1 * (level * slack).mean(-1, keepdim=True)
        rise = _solve(excess + barrier / level, diagonal + slack / level, through)
        loosen = barrier / level - slack - slack / level * rise
        # steps neither reach the boundary nor increase an entry much
        level = level + _limit_step(torch.maximum(-rise, rise / 8.0) / level) * rise
        slack = slack + _limit_step(-loosen / slack) * loosen
    return torch.where(level < UNUSED * price, 0.0, level)


def _start(mean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return l [S, K] to start from, and the usual price [S, 1], for mean qualities [S, K].

    The start is l of devices without fading: u_k = 1 if the static optimum has full power, else a
    small u_k; and so low that some device transmits. In every state sum_k l_k u_k = N s, and the
    usual price is each device's part of it.
    """
    all_devices = torch.ones_like(mean, dtype=torch.bool)
    noise = noise[:, None]
    s = (
        compute_threshold(mean.sqrt(), torch.ones_like(mean), noise, all_devices)
        .square()
        .reciprocal()
    )
    level = torch.where(mean * s < 0.9, (mean * s).sqrt() - mean * s, 0.1)
    return torch.minimum(level, 0.1 * mean.sum(-1, keepdim=True) / noise), noise * s / len(mean[0])


def _limit_step(relative: Tensor) -> Tensor:
    """Return the longest step, at most 1, that reduces no entry by more than 90 %, [S, 1]."""
    return (0.9 / relative.amax(-1, keepdim=True).clamp_min(1e-9)).clamp_max(1.0)


def _solve(right: Tensor, diagonal: Tensor, through: Tensor) -> Tensor:
    """Solve (diag + mean over states of v v^T) x = right for x [S, K].

    The vectors v are `through` [n, S, K].
    """
    preconditioner = 1.0 / (diagonal + through.square().mean(0))
    x, rest = torch.zeros_like(right), right
    z = preconditioner * rest
    direction, size = z, (rest * z).sum(-1, keepdim=True)
    for _ in range(GRADIENT_STEPS):
        along = (through * direction).sum(-1, keepdim=True)
        image = diagonal * direction + (through * along).mean(0)
        length = size / (direction * image).sum(-1, keepdim=True).clamp_min(_SMALL)
        x, rest = x + length * direction, rest - length * image
        z = preconditioner * rest
        before, size = size, (rest * z).sum(-1, keepdim=True)
        direction = z + size / before.clamp_min(_SMALL) * direction
    return x


SEEN = 16
"""Number of occurrences among n drawn states at which the power of a state is bounded.

Because the mean is within the budget, such a state had at most n / SEEN budgets.
"""

PLAN_NUMBERS = 1 << 16
"""Largest number of states times devices of a plan, unless that is below `ENOUGH` states."""

ENOUGH = 256
"""Smallest number of states of a plan, unless `draws` is smaller."""

Plan = tuple[Tensor, float]
"""lambda_k P_k [S, K], and the largest |p|^2 m / P."""


class CaoAverage(PowerPolicy):
    """Regularised channel inversion with planned multipliers of the power budgets."""

    may_be_silent: ClassVar[bool] = True
    power_constraint: ClassVar[Constraint] = "average"
    small: ClassVar[Mapping[str, Any]] = {"draws": 64}

    name: Literal["cao_average"] = "cao_average"
    draws: int = Field(2048, ge=64)
    """largest number of fading states on which the multipliers are planned (fewer with over 32
    devices); budgets are met on them, and within a few per cent on others"""

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
        states = min(self.draws, max(ENOUGH, PLAN_NUMBERS // devices))
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
