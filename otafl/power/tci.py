"""Truncated channel inversion: devices with g_k >= g_th invert, p_k = sqrt(rho) h_k^* / g_k, the
others are silent. A device of mean gain beta keeps its long-term budget with rho = P beta /
(E1(g_th / beta) m) under Rayleigh fading; the peak power is above P. FedRLR's "CI" ("Proposed
2") is this with g_th = 0.1."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import TciConfig
from otafl.power.scalars import TINY, cophase


class TruncatedChannelInversion:
    constraint: ClassVar[Literal["peak", "average"]] = "average"
    may_be_silent: ClassVar[bool] = True

    def __init__(self, config: TciConfig) -> None:
        self.config = config

    def prepare(self, statistics: Statistics, hyper: Hyper) -> Tensor:
        """E|p_k|^2 / rho [S, K] of the inversion."""
        if not self.config.count_policy_power:
            return torch.ones_like(statistics.gain)
        return statistics.mean_inverse(hyper["threshold"])

    def coefficients(self, state: Tensor, link: Link) -> tuple[Tensor, Coefficients]:
        gain = link.h.abs().square()
        sends = link.sends[:, None]
        active = sends & (gain >= link.hyper["threshold"][:, None, None])
        cost = (state / link.budget)[:, None] * link.power  # of one unit of rho, over the budget
        if self.config.reference == "max":
            worst = (cost * sends).amax(-1)
        else:
            worst = (cost * sends).sum(-1) / sends.sum(-1).clamp_min(1)
        rho = worst.clamp_min(TINY).reciprocal()
        amplitude = torch.where(active, (rho[..., None] / gain.clamp_min(1e-30)).sqrt(), 0.0)
        return state, Coefficients(cophase(amplitude, link.h), rho, active)
