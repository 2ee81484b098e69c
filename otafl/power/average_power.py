"""Solve the two problems of average power budgets (see `cao_average.py`).

Numbers are without dimension: q_k = P_k g_k, l_k = lambda_k P_k, s = 1 / eta, so that a device's
power over its budget is u_k = q_k s / (q_k s + l_k)^2.

In every fading state, s solves G(s) = sum_k w_k l_k q_k / (q_k s + l_k)^2 = N. G^(-1/2) is a power
mean of linear functions of s, so concave, and Newton's steps from s = 0 never pass the root.

Offline, the multipliers maximise the dual function, mean over states of the least Lagrangian less
sum_k l_k: concave, with gradient mean(u_k) - 1 and a Hessian that is a diagonal and one rank a
state. A primal-dual interior-point method keeps l_k >= 0; its Newton systems are solved by
conjugate gradients, so that memory and time grow with states times devices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.power.scalars import compute_threshold

STATE_STEPS = 12
"""Newton steps in a fading state; to the last bit in eight with multipliers over eight decades."""

NEAR_STEPS = 4
"""The steps begin at a neighbour's s: the first may pass the root, the others do not."""

DUAL_STEPS = 60
"""Most steps of the interior-point method; it needs 10 to 40."""

GRADIENT_STEPS = 8
"""Steps of conjugate gradients for each; after the diagonal's preconditioning, one direction
dominates."""

TOLERANCE = 1e-9
"""Budgets are met to this share of them, on the states planned for."""

NUMBERS = 1 << 17
"""Most states times trials times devices worked on at a time: what a processor's cache holds."""

UNUSED = 1e-6
"""A multiplier so far below the usual price is zero: the budget is not needed."""

_SMALL = 1e-300


def inverse_scaling(
    quality: Tensor,
    multiplier: Tensor,
    weight: Tensor,
    noise: Tensor,
    near: Tensor | None = None,
) -> Tensor:
    """Return s = 1 / eta [...] of the states' q, l, w [..., K] and N [...]; 0 where all are silent.

    near: s of slightly other multipliers, from where a few steps are enough.
    """
    on = multiplier > 0  # a device without multiplier inverts at any s, and is not in the equation
    q, w = torch.where(on, quality, 0.0), torch.where(on, weight, 0.0)
    multiplier = torch.where(on, multiplier, 1.0)
    s = torch.zeros_like(quality[..., 0]) if near is None else near
    for _ in range(STATE_STEPS if near is None else NEAR_STEPS):
        y = q * s[..., None] + multiplier
        term = w * multiplier * q / y.square()
        value, slope = term.sum(-1), (term * q / y).sum(-1)
        tiny = torch.finfo(s.dtype).tiny
        step = value * ((value / noise).sqrt() - 1.0) / slope.clamp_min(tiny)
        s = (s + step).clamp_min(0.0)
    return s


def solve_multipliers(quality: Tensor, noise: Tensor) -> Tensor:
    """Return l [S, K] of n equally likely states q [n, S, K] with noise N [S], all in float64, such
    that mean u_k = 1, or l_k = 0 and mean u_k <= 1."""
    states, _, devices = quality.shape
    together = max(1, NUMBERS // (states * devices))
    parts = zip(quality.split(together, 1), noise.split(together), strict=True)
    return torch.cat([_solve_multipliers(*part) for part in parts])


def _solve_multipliers(quality: Tensor, noise: Tensor) -> Tensor:
    level, price = _start(quality.mean(0), noise)
    slack = torch.full_like(level, 0.3)  # 1 - mean u, a variable apart until the end
    weight = torch.ones_like(level)
    s = None
    for _ in range(DUAL_STEPS):
        s = inverse_scaling(quality, level, weight, noise, s)
        y = quality * s[..., None] + level
        used = quality * s[..., None] / y.square()
        excess = used.mean(0) - 1.0
        unmet = torch.maximum(excess, torch.minimum(excess.abs(), level / price))
        if bool((unmet < TOLERANCE).all()):
            break
        # second derivatives of the least Lagrangian of a state: in l, and through s
        diagonal = (2.0 * used / y).mean(0)
        bend = (2.0 * level * quality.square() / y**3).sum(-1, keepdim=True)
        through = quality * (y - 2.0 * level) / y**3 / bend.clamp_min(_SMALL).sqrt()
        through = torch.where(s[..., None] > 0, through, 0.0)
        barrier = 0.1 * (level * slack).mean(-1, keepdim=True)
        rise = _solve(excess + barrier / level, diagonal + slack / level, through)
        loosen = barrier / level - slack - slack / level * rise
        # never to the boundary, and not far up either
        level = level + _limit_step(torch.maximum(-rise, rise / 8.0) / level) * rise
        slack = slack + _limit_step(-loosen / slack) * loosen
    return torch.where(level < UNUSED * price, 0.0, level)


def _start(mean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return l [S, K] to start from, and the usual price [S, 1], for mean qualities [S, K].

    The start is l of devices without fading: u_k = 1 where the static optimum has full power,
    little where it has not; and low enough that somebody sends. In every state sum_k l_k u_k = N s,
    of which the usual price is each device's part.
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
    """Return the longest step, at most 1, that takes at most nine tenths of any entry, [S, 1]."""
    return (0.9 / relative.amax(-1, keepdim=True).clamp_min(1e-9)).clamp_max(1.0)


def _solve(right: Tensor, diagonal: Tensor, through: Tensor) -> Tensor:
    """Return x [S, K] of (diag + mean over states of v v^T) x = right, v = through [n, S, K]."""
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
