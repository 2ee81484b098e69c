"""Truncated channel inversion: devices with g_k >= g_th invert, p_k = sqrt(rho) h_k^* / g_k, the
others are silent. A device of mean gain beta keeps its long-term budget with rho = P beta /
(E1(g_th / beta) m) under Rayleigh fading; the peak power is above P. FedRLR's "CI" ("Proposed
2") is this with g_th = 0.1. Under a peak constraint the device at the threshold is at its budget,
rho = P g_th / m, and all others are below."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import TciConfig
from otafl.power.scalars import TINY, cophase, fixed_power, reference_gain


class TruncatedChannelInversion:
    may_be_silent: ClassVar[bool] = True
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: TciConfig) -> None:
        self.config = config
        self.constraint: Literal["peak", "average", "none"] = config.constraint
        if config.gamma is not None:
            self.constraint = "none"

    def prepare(self, statistics: Statistics, hyper: Hyper) -> tuple[Tensor, Tensor]:
        """|p_k|^2 / rho [S, K] that the budget holds for, the inversion's mean or its peak; g_th
        [S]."""
        threshold = hyper["threshold"] * reference_gain(statistics, self.config.relative)
        if self.constraint == "peak":
            return threshold.reciprocal()[:, None].expand_as(statistics.gain), threshold
        if not self.config.count_policy_power:
            unit = hyper["threshold"] / threshold  # |p|^2 is rho at the mean gain
            return unit[:, None].expand_as(statistics.gain), threshold
        return statistics.mean_inverse(threshold), threshold

    def coefficients(
        self, state: tuple[Tensor, Tensor], link: Link
    ) -> tuple[tuple[Tensor, Tensor], Coefficients]:
        inverse, threshold = state
        gain = link.h.abs().square()
        active = link.sends[:, None] & (gain >= threshold[:, None, None])
        rho = self._scale(inverse, link)
        amplitude = torch.where(active, (rho[..., None] / gain.clamp_min(1e-30)).sqrt(), 0.0)
        return state, Coefficients(cophase(amplitude, link.h), rho, active)

    def _scale(self, inverse: Tensor, link: Link) -> Tensor:
        """rho [S, Q]: |p_k|^2 of a device of unit gain."""
        if self.config.gamma is not None:
            return fixed_power(link, self.config.gamma)[..., 0].expand(link.h.shape[:2])
        sends = link.sends[:, None]
        cost = (inverse / link.budget)[:, None] * link.power  # of one unit of rho, over the budget
        if self.config.reference == "max":
            worst = (cost * sends).amax(-1)
        else:
            worst = (cost * sends).sum(-1) / sends.sum(-1).clamp_min(1)
        return worst.clamp_min(TINY).reciprocal()
