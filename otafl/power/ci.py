"""Invert the channel, at the gain of the weakest device.

p_k = sqrt(eta) / h_k with eta = min_k P_k g_k / m_k: every device arrives with c_k = 1, and the
error is noise alone.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Link
from otafl.power.base import PowerPolicy
from otafl.power.scalars import (
    MIN_REACH,
    align_phases,
    compute_amplitude_bound,
    get_transmitter_mask,
    invert_channel,
)


class ChannelInversion(PowerPolicy):
    receiver: ClassVar[str] = "uniform_forcing"

    name: Literal["ci"] = "ci"

    @property
    def is_inversion(self) -> bool:
        return True

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        return None, invert_by_weakest(link)


def invert_by_weakest(link: Link) -> Coefficients:
    """Return c_k = 1 for all devices that send, at the gain of the one that reaches least."""
    active = get_transmitter_mask(link)
    reach = torch.where(active, compute_amplitude_bound(link) * link.h.abs(), math.inf)
    root_eta = reach.amin(-1, keepdim=True).clamp_min(MIN_REACH)
    root_eta = torch.where(root_eta.isinf(), 1.0, root_eta)  # nobody sends
    return align_phases(link, invert_channel(root_eta, link), root_eta, active)
