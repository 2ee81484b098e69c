"""Truncated channel inversion under a long-term budget; weak devices are silent (FedRLR's "CI").

Devices with g_k >= g_th invert their channel, p_k = sqrt(rho) h_k^* / g_k, and the others are
silent (truncated channel inversion). Under Rayleigh fading, a device of mean gain beta meets its
long-term budget with

    rho = P beta / (E1(g_th / beta) m),

and the peak power is above P. FedRLR's "CI" ("Proposed 2") has g_th = 0.1. Under a peak constraint
the device at the threshold transmits at its budget, rho = P g_th / m, and all others are below
theirs.

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
    """Truncated channel inversion. Study: `studies/fedhm/fedhm_over_the_air.yaml`."""

    may_be_silent: ClassVar[bool] = True

    name: Literal["tci"] = "tci"
    threshold: float = declare_stackable(0.1, ge=1e-30)
    """threshold g_th on |h|^2 times the large-scale gain"""
    relative: bool = Field(True, description=RELATIVE)
    reference: Reference = Field("max", description=REFERENCE)
    count_policy_power: bool = True
    """whether the budget bounds the power of the inversion, E|p|^2 = E1(g_th) on average, instead
    of |p|^2 at the mean gain"""
    constraint: Literal["average", "peak"] = "average"
    """kind of the budget: on the average over fading, or on every round, in which case the device
    at the threshold transmits at its budget"""
    gamma: float | None = Field(None, gt=0, description=GAMMA)

    def find_conflicts(self) -> Iterator[str]:
        if self.constraint == "peak" and self.gamma is not None:
            yield (
                "constraint: peak does not go with gamma, which sets the power at any budget; "
                "leave one of them out"
            )
        if self.constraint == "peak" and (self.reference == "mean" or not self.count_policy_power):
            yield (
                "constraint: peak bounds each device's power in every round, so reference: mean "
                "and count_policy_power: false do not go with it; leave them out, or use "
                "constraint: average"
            )

    @property
    def power_constraint(self) -> Constraint:
        return self.constraint if self.gamma is None else "none"

    @property
    def is_inversion(self) -> bool:
        return True

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Pair:
        """Return |p_k|^2 / rho [S, K] that the budget bounds, and g_th [S].

        The first is the inversion's mean power, or its peak.
        """
        threshold = hyper["threshold"] * compute_reference_gain(statistics, self.relative)
        if self.power_constraint == "peak":
            return threshold.reciprocal()[:, None].expand_as(statistics.gain), threshold
        if not self.count_policy_power:
            unit = hyper["threshold"] / threshold  # |p|^2 is rho at the mean gain
            return unit[:, None].expand_as(statistics.gain), threshold
        return statistics.mean_inverse(threshold), threshold

    def compute_coefficients(self, state: Pair, link: Link) -> tuple[Pair, Coefficients]:
        r"""Invert the channels at or above the threshold.

        Notes
        -----
        .. math::

            p_k = \sqrt{\rho} h_k^* / g_k, \quad g_k \geq g_{th}, \quad \eta = \rho
        """
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
        ] * link.symbol_power  # power of one unit of rho, over the budget
        return reduce_over_devices(cost, link, self.reference)[..., 0].reciprocal()
