"""Runs of policies with energy for life, over independent Rayleigh fading: ten devices, 10 dB, a
quarter of full power on average. Errors are those of the mean over all ten, of unit symbols; a slot
in which nobody of a trial sends has the error of a zero."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from support.power_links import make_policy, make_rayleigh_statistics
from torch import Tensor

from otafl.core.contracts import Link

LEVEL = 1e-4

TRIALS, DEVICES, SLOTS = 32, 10, 200

POWER, SHARE, N = 10.0, 0.25, 0.5

F64 = torch.float64


@dataclass(frozen=True)
class Run:
    """error: [SLOTS, S] of the mean, over that of sending nothing. energy: [SLOTS, S, K], in slots
    at full power."""

    error: Tensor
    energy: Tensor


def draw_fading() -> Tensor:
    z = np.random.default_rng(5).standard_normal((2, SLOTS, TRIALS, 1, DEVICES))
    return torch.from_numpy((z[0] + 1j * z[1]) * math.sqrt(0.5))


def draw_symbols(spread: bool) -> Tensor:
    """m [S, 1, K]."""
    if not spread:
        return torch.ones(TRIALS, 1, DEVICES, dtype=F64)
    return torch.from_numpy(np.random.default_rng(6).uniform(0.2, 3.0, (TRIALS, 1, DEVICES)))


def make_link(spread: bool) -> Link:
    ones = torch.ones(TRIALS, DEVICES, dtype=F64)
    return Link(
        h=draw_fading()[0],
        gain=ones,
        budget=POWER * ones,
        symbol_power=draw_symbols(spread),
        noise_variance=torch.full((TRIALS,), N, dtype=F64),
        transmit_mask=ones.bool(),
        is_linear=True,
        hyper={},
    )


@functools.cache
def run(name: str, spread: bool = False, life: bool = False, **fields: Any) -> Run:
    """life: the device is off once SLOTS times the share of full power are spent, and sends its
    last rest with less, for a policy that does not know of it."""
    options = {n: v for n, v in fields.items() if isinstance(v, str)}
    numbers = {n: v for n, v in fields.items() if n not in options}
    policy, link = make_policy(name, **options), make_link(spread)
    hyper = {n: torch.full((TRIALS,), float(v), dtype=F64) for n, v in numbers.items()}
    link = replace(link, hyper=hyper)
    state = policy.prepare(make_rayleigh_statistics(link), hyper)
    left = torch.full((TRIALS, DEVICES), SLOTS * SHARE, dtype=F64)
    errors, energies = [], []
    for h in draw_fading():
        now = replace(link, h=h)
        if life:
            share = left.clamp(1e-12, 1.0)
            now = replace(now, budget=POWER * share, transmit_mask=left > 1e-9)
        state, got = policy.compute_coefficients(state, now)
        energy = (got.p.abs().square() * link.symbol_power)[:, 0] / POWER
        left = left - energy
        errors.append(_compute_error(now, got.p, got.eta, got.active_mask))
        energies.append(energy)
    return Run(torch.stack(errors), torch.stack(energies))


def _compute_error(link: Link, p: Tensor, eta: Tensor, active: Tensor) -> Tensor:
    """[S] of the mean over the active for the mean over all, times K^2 over sum m."""
    m, heard = link.symbol_power[:, 0], active[:, 0].sum(-1)
    ratio = DEVICES / heard.clamp_min(1)
    c = (link.h * p).real[:, 0] / eta.sqrt()
    error = (m * (c * active[:, 0] * ratio[:, None] - 1).square()).sum(-1)
    error = error + N / eta[:, 0] * ratio.square()
    return torch.where(heard > 0, error / m.sum(-1), 1.0)


def is_below(one: Tensor, other: Tensor, tests: int = 1) -> bool:
    """Whether the mean over trials [S] of one is below the other's, by a paired t-test."""
    return float(stats.ttest_rel(one, other, alternative="less").pvalue) < LEVEL / tests
