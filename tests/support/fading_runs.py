"""Fading states of Rayleigh devices that act on an estimate, for laws of power policies."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import stats
from support.power_links import fill_in

from otafl.channels.rayleigh import Rayleigh
from otafl.core.contracts import ChannelStatistics, Coefficients, Link
from otafl.power.base import PowerPolicy

LEVEL = 1e-4

STATES, DEVICES, BUDGET = 20_000, 8, 5.0

M = torch.tensor([1.0, 0.3, 2.0, 0.7, 1.5, 0.1, 1.2, 0.9], dtype=torch.float64)


def run(
    policy: PowerPolicy,
    gain: float = 1.0,
    variance: float = 0.0,
    threshold: float = 0.1,
    m: torch.Tensor = M,
    linear: bool = True,
) -> tuple[torch.Tensor, Link, Coefficients]:
    """h [S, 1, K], link and coefficients of 20,000 fading states of 8 Rayleigh devices; devices act
    on h + e."""
    z = np.random.default_rng(1).standard_normal((4, STATES, 1, DEVICES)) * math.sqrt(gain / 2)
    h = torch.from_numpy(z[0] + 1j * z[1])
    h_hat = h + math.sqrt(variance) * torch.from_numpy(z[2] + 1j * z[3])
    ones = torch.ones(STATES, DEVICES, dtype=torch.float64)
    hyper = {name: torch.full((STATES,), threshold).double() for name in ("threshold", "h_min")}
    link = Link(
        h=h_hat,
        gain=gain * ones,
        budget=BUDGET * ones,
        symbol_power=m.expand(STATES, 1, DEVICES),
        noise_variance=torch.full((STATES,), 0.5, dtype=torch.float64),
        transmit_mask=ones.bool(),
        is_linear=linear,
        hyper=hyper,
    )
    inverse = Rayleigh.compute_mean_inverse(None, threshold, gain, variance)  # type: ignore[arg-type]
    statistics = ChannelStatistics(
        gain=link.gain,
        budget=link.budget,
        noise_variance=link.noise_variance,
        mean_amplitude=lambda: Rayleigh.unit_mean_amplitude * link.gain.sqrt(),
        mean_power=lambda: link.gain,
        mean_inverse=lambda threshold: inverse * ones,
        prob_unit_gain_above=lambda threshold: (
            torch.exp(-threshold / (1.0 + variance))[:, None] * ones
        ),
        prob_gain_above=lambda threshold: torch.exp(-threshold / (gain * (1.0 + variance))),
        draw_samples=lambda count: h_hat[:1].expand(count, -1, -1),
    )
    link = fill_in(policy, link)
    state = policy.prepare(statistics, link.hyper)
    return h, link, policy.compute_coefficients(state, link)[1]


def compute_interval(sample: torch.Tensor, tests: int = 1) -> float:
    """Half-width about the mean at the level, shared by so many tests."""
    return stats.norm.isf(LEVEL / 2 / tests) * sample.std().item() / math.sqrt(sample.numel())
