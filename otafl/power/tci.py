"""Invert the channel under a long-term budget; weak devices are silent (FedRLR's "CI").

Devices with g_k >= g_th invert, p_k = sqrt(rho) h_k^* / g_k, the others are silent (truncated
channel inversion). A device of mean gain beta keeps its long-term budget with rho = P beta /
(E1(g_th / beta) m) under Rayleigh fading; the peak power is above P. FedRLR's "CI" ("Proposed 2")
is this with g_th = 0.1. Under a peak constraint the device at the threshold is at its budget, rho =
P g_th / m, and all others are below.

References
----------
Zhu, Wang, Huang 2020, "Broadband Analog Aggregation for Low-Latency Federated Edge Learning".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import declare_stackable
from otafl.power.base import GAMMA, REFERENCE, RELATIVE, Constraint, Pair, PowerPolicy, Reference
from otafl.power.scalars import (
    TINY,
    compute_fixed_power,
    compute_reference_gain,
    cophase,
    get_transmitter_mask,
    reduce_over_devices,
)


class TruncatedChannelInversion(PowerPolicy):
    may_be_silent: ClassVar[bool] = True

    name: Literal["tci"] = "tci"
    threshold: float = declare_stackable(0.1, gt=0)
    """g_th on |h|^2 times large-scale gain"""
    relative: bool = Field(True, description=RELATIVE)
    reference: Reference = Field("max", description=REFERENCE)
    count_policy_power: bool = True
    """the budget counts E|p|^2 = E1(g_th) of the inversion"""
    constraint: Literal["average", "peak"] = "average"
    """the budget is one on the average over fading, or one on every round: the device at the
    threshold is then at its budget"""
    gamma: float | None = Field(None, gt=0, description=GAMMA)

    def find_conflicts(self) -> Iterator[str]:
        if self.constraint == "peak" and self.gamma is not None:
            yield (
                "gamma sets the power whatever the budget, so constraint: peak does not go with it"
            )
        if self.constraint == "peak" and (self.reference == "mean" or not self.count_policy_power):
            yield (
                "constraint: peak bounds each device's power in every round, so reference: mean "
                "and count_policy_power: false do not go with it; leave them out, or take "
                "constraint: average"
            )

    @property
    def power_constraint(self) -> Constraint:
        return self.constraint if self.gamma is None else "none"

    @property
    def is_inversion(self) -> bool:
        return True

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Pair:
        """Return |p_k|^2 / rho [S, K] that the budget holds for, the inversion's mean or its peak,
        and g_th [S]."""
        threshold = hyper["threshold"] * compute_reference_gain(statistics, self.relative)
        if self.power_constraint == "peak":
            return threshold.reciprocal()[:, None].expand_as(statistics.gain), threshold
        if not self.count_policy_power:
            unit = hyper["threshold"] / threshold  # |p|^2 is rho at the mean gain
            return unit[:, None].expand_as(statistics.gain), threshold
        return statistics.mean_inverse(threshold), threshold

    def compute_coefficients(self, state: Pair, link: Link) -> tuple[Pair, Coefficients]:
        inverse, threshold = state
        gain = link.h.abs().square()
        active = get_transmitter_mask(link) & (gain >= threshold[:, None, None])
        rho = self._scale(inverse, link)
        amplitude = torch.where(active, (rho[..., None] / gain.clamp_min(TINY)).sqrt(), 0.0)
        return state, Coefficients(cophase(amplitude, link.h), rho, active)

    def _scale(self, inverse: Tensor, link: Link) -> Tensor:
        """Return rho, |p_k|^2 of a device of unit gain, [S, Q]."""
        if self.gamma is not None:
            return compute_fixed_power(link, self.gamma)[..., 0].expand(link.h.shape[:2])
        cost = (inverse / link.budget)[
            :, None
        ] * link.symbol_power  # of one unit of rho, over the budget
        return reduce_over_devices(cost, link, self.reference)[..., 0].reciprocal()
