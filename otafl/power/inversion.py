"""Policies that invert the channel, so that all devices on air have the effective gain one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import declare_stackable
from otafl.power.base import (
    GAMMA,
    REFERENCE,
    RELATIVE,
    TINY,
    Constraint,
    Pair,
    PowerPolicy,
    Reference,
    align_phases,
    compute_amplitude_bound,
    compute_fixed_power,
    compute_reference_gain,
    compute_reference_power,
    cophase,
    invert_channel,
    reduce_over_devices,
)


class InversionByWeakest(PowerPolicy):
    """Channel inversion of all transmitters at the level of the weakest one."""

    receiver: ClassVar[str] = "uniform_forcing"
    is_inversion: ClassVar[bool] = True

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Invert the scalar channels, with the effective gain c_k = 1.

        Notes
        -----
        .. math::

            p_k = \sqrt{\eta} / h_k, \quad \eta = \min_k P_k g_k / m_k
        """
        active = link.eligible_mask
        reach = torch.where(active, compute_amplitude_bound(link) * link.h.abs(), math.inf)
        root_eta = reach.amin(-1, keepdim=True).clamp_min(TINY)
        root_eta = torch.where(root_eta.isinf(), 1.0, root_eta)  # all are silent
        return None, align_phases(link, invert_channel(root_eta, link), root_eta, active)


class ChannelInversion(InversionByWeakest):
    """Channel inversion at the gain of the weakest device.

    With eta = min_k P_k g_k / m_k and p_k = sqrt(eta) / h_k, every device has the effective gain
    c_k = 1, and only noise causes an error.
    """

    name: Literal["ci"] = "ci"


class MultiAntennaChannelInversion(InversionByWeakest):
    """Channel inversion behind a uniform-forcing combiner, at the gain of the weakest device.

    With the combiner f and eta = min_k P_k |f^H h_k|^2 / m_k,

        p_k = sqrt(eta) (f^H h_k)^* / |f^H h_k|^2.

    The receiver combines the antennas before a policy acts, so the policy is `ci` on f^H h, and
    with one antenna it is `ci`. The combiner is that of uniform forcing, which maximises eta.

    References
    ----------
    Chen, Qin, Li 2018, "A Uniform-Forcing Transceiver Design for Over-the-Air Function
        Computation".
    """

    example: ClassVar = {"channel.antennas": 4}

    name: Literal["multi_antenna_ci"] = "multi_antenna_ci"


class Genie(PowerPolicy):
    """Unit gains: every device has the effective gain one, at any transmit power, with noise.

    Gains are ideal and budgets are exceeded, so no real device can use the policy. Every device has
    c_k = 1, p_k = sqrt(eta) / h_k. The noise is that of the average device at full power, eta =
    mean_k(P_k g_k) / mean_k(m_k) over the transmitters.

    It is no bound: the policies of least squared error trade gains below one for less noise, and
    have a smaller error at low SNR. The error-free reference is the transport `ideal`.
    """

    is_inversion: ClassVar[bool] = True
    power_constraint: ClassVar[Constraint] = "none"

    name: Literal["genie"] = "genie"

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Invert all channels at the mean received power.

        Notes
        -----
        .. math::

            \eta = \frac{\sum_k P_k g_k}{\sum_k m_k}
        """
        active = link.eligible_mask
        received = (link.budget[:, None] * link.h.abs().square() * active).sum(-1, keepdim=True)
        needed = (link.symbol_power * active).sum(-1, keepdim=True)
        root_eta = (received / needed.clamp_min(TINY)).sqrt()
        root_eta = torch.where(received > 0, root_eta, 1.0)  # no device transmits
        return None, align_phases(link, invert_channel(root_eta, link), root_eta, active)


class TruncatedChannelInversion(PowerPolicy):
    """Truncated channel inversion under a long-term budget; weak devices are silent.

    Devices with g_k >= g_th invert their channel, p_k = sqrt(rho) h_k^* / g_k, and the others are
    silent (truncated channel inversion). Under Rayleigh fading, a device of mean gain beta meets
    its long-term budget with

        rho = P beta / (E1(g_th / beta) m),

    and the peak power is above P. FedRLR's "CI" ("Proposed 2") has g_th = 0.1. Under a peak
    constraint the device at the threshold transmits at its budget, rho = P g_th / m, and all others
    are below theirs.

    Study: `studies/fedhm/fedhm_over_the_air.yaml`.

    References
    ----------
    Zhu, Wang, Huang 2020, "Broadband Analog Aggregation for Low-Latency Federated Edge Learning".
    """

    may_be_silent: ClassVar[bool] = True
    is_inversion: ClassVar[bool] = True

    name: Literal["tci"] = "tci"
    threshold: float = declare_stackable(0.1, ge=1e-30)
    """threshold g_th on |h|^2 times the large-scale gain"""
    relative: bool = Field(True, description=RELATIVE)
    reference: Reference = Field("max", description=REFERENCE)
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
        if self.constraint == "peak" and self.reference == "mean":
            yield (
                "constraint: peak bounds each device's power in every round, so reference: mean "
                "does not go with it; leave it out, or use constraint: average"
            )

    @property
    def power_constraint(self) -> Constraint:
        return self.constraint if self.gamma is None else "none"

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Pair:
        """Return |p_k|^2 / rho [S, K] that the budget bounds, and g_th [S].

        The first is the inversion's mean power, or its peak.
        """
        threshold = hyper["threshold"] * compute_reference_gain(statistics, self.relative)
        if self.power_constraint == "peak":
            return threshold.reciprocal()[:, None].expand_as(statistics.gain), threshold
        return statistics.mean_inverse(threshold), threshold

    def get_least_gain(self, state: Pair) -> Tensor:
        return state[1]

    def compute_coefficients(self, state: Pair, link: Link) -> tuple[Pair, Coefficients]:
        r"""Invert the channels at or above the threshold.

        Notes
        -----
        .. math::

            p_k = \sqrt{\rho} h_k^* / g_k, \quad g_k \geq g_{th}, \quad \eta = \rho
        """
        inverse, threshold = state
        gain = link.h.abs().square()
        active = link.eligible_mask & (gain >= threshold[:, None, None])
        rho = self._scale(inverse, link)
        amplitude = torch.where(active, (rho[..., None] / gain.clamp_min(TINY)).sqrt(), 0.0)
        return state, Coefficients(cophase(amplitude, link.h), rho, active)

    def _scale(self, inverse: Tensor, link: Link) -> Tensor:
        """Return rho, |p_k|^2 of a device of unit gain, [S, Q]."""
        if self.gamma is not None:
            return compute_fixed_power(link, self.gamma)[..., 0].expand(link.h.shape[:2])
        cost = (inverse / link.budget)[:, None] * link.symbol_power  # at rho = 1, over the budget
        return reduce_over_devices(cost, link, self.reference)[..., 0].reciprocal()


H_MIN = 0.1
STEADY = 0.9999
"""Default h_min of `cotaf` over fading and, less rounding errors, without fading."""

STATES = 64
"""Channel states that show whether there is fading."""


class Cotaf(PowerPolicy):
    """Inversion to a level that follows the power of the updates; weak devices are silent (COTAF).

    The common scale is time-varying precoding, alpha_t = min_k P_k / m_k. Devices with an amplitude
    of at least h_min invert to it,

        p_k = sqrt(alpha_t) h_min / h_k,

    and the others are silent. When updates shrink, alpha_t grows, and the noise N / (K_a^2 alpha_t
    h_min^2) of the mean over the K_a devices on air decreases with them. m_k is that of this
    round's updates, while the paper bounds its expectation; it is side information.

    Study: `studies/time_and_energy/deadline_stragglers.yaml`.

    References
    ----------
    Sery, Shlezinger, Cohen, Eldar 2021, "Over-the-Air Federated Learning from Heterogeneous Data",
        eq. 8 to 10 and the fading case.
    """

    may_be_silent: ClassVar[bool] = True
    is_inversion: ClassVar[bool] = True

    name: Literal["cotaf"] = "cotaf"
    h_min: float | None = declare_stackable(None, ge=1e-30)
    """smallest |h| of a transmitter, times the root of the large-scale gain if relative; if not
    given, 0.1, or 1 if no device of the trial is ever weaker, as over awgn"""
    relative: bool = Field(True, description=RELATIVE)

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Tensor:
        """Return the smallest amplitude of a transmitter, [S]."""
        reference = compute_reference_gain(statistics, self.relative).sqrt()
        if "h_min" in hyper:
            return hyper["h_min"] * reference
        weakest = statistics.draw_samples(STATES).abs().amin((0, 2))
        return torch.where(weakest >= STEADY * reference, STEADY, H_MIN) * reference

    def get_least_gain(self, state: Tensor) -> Tensor:
        return state.square()

    def compute_coefficients(self, state: Tensor, link: Link) -> tuple[Tensor, Coefficients]:
        r"""Compute the inversion to the time-varying scale.

        Notes
        -----
        .. math::

            p_k = \sqrt{\alpha_t} h_{min} / h_k, \quad \sqrt{\eta} = \sqrt{\alpha_t} h_{min}
        """
        least = state[:, None, None]
        active = link.eligible_mask & (link.h.abs() >= least)
        root_eta = (compute_reference_power(link, "max").rsqrt() * least).clamp_min(TINY)
        amplitude = torch.where(active, invert_channel(root_eta, link), 0.0)
        return state, align_phases(link, amplitude, root_eta, active)
