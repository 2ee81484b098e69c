"""Inversion to a level that follows the power of the updates; weak devices are silent (COTAF).

The common scale is time-varying precoding, alpha_t = min_k P_k / m_k. Devices with an amplitude of
at least h_min invert to it,

    p_k = sqrt(alpha_t) h_min / h_k,

and the others are silent. When updates shrink, alpha_t grows, and the noise N / (K_a^2 alpha_t
h_min^2) of the mean over the K_a devices on air decreases with them. m_k is that of this round's
updates, while the paper bounds its expectation; it is side information.

References
----------
Sery, Shlezinger, Cohen, Eldar 2021, "Over-the-Air Federated Learning from Heterogeneous Data",
    eq. 8 to 10 and the fading case.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import declare_stackable
from otafl.power.base import RELATIVE, PowerPolicy
from otafl.power.scalars import (
    TINY,
    align_phases,
    compute_reference_gain,
    compute_reference_power,
    get_transmitter_mask,
    invert_channel,
)


class Cotaf(PowerPolicy):
    """Time-varying precoding. Study: `studies/time_and_energy/deadline_stragglers.yaml`."""

    may_be_silent: ClassVar[bool] = True

    name: Literal["cotaf"] = "cotaf"
    h_min: float = declare_stackable(0.1, ge=1e-30)
    """smallest |h| of a transmitter, times the root of the large-scale gain if relative"""
    relative: bool = Field(True, description=RELATIVE)

    @property
    def is_inversion(self) -> bool:
        return True

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Tensor:
        """Return the smallest amplitude of a transmitter, [S]."""
        return hyper["h_min"] * compute_reference_gain(statistics, self.relative).sqrt()

    def compute_coefficients(self, state: Tensor, link: Link) -> tuple[Tensor, Coefficients]:
        r"""Compute the inversion to the time-varying scale.

        Notes
        -----
        .. math::

            p_k = \sqrt{\alpha_t} h_{min} / h_k, \quad \sqrt{\eta} = \sqrt{\alpha_t} h_{min}
        """
        least = state[:, None, None]
        active = get_transmitter_mask(link) & (link.h.abs() >= least)
        root_eta = (compute_reference_power(link, "max").rsqrt() * least).clamp_min(TINY)
        amplitude = torch.where(active, invert_channel(root_eta, link), 0.0)
        return state, align_phases(link, amplitude, root_eta, active)
