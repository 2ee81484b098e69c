"""Unit gains: every device has the effective gain one, at any transmit power, with noise.

Gains are ideal and budgets are exceeded, so no real device can use the policy. Every device has
c_k = 1, p_k = sqrt(eta) / h_k. The noise is that of the average device at full power,
eta = mean_k(P_k g_k) / mean_k(m_k) over the transmitters.

It is no bound: the policies of least squared error trade gains below one for less noise, and have
a smaller error at low SNR. The error-free reference is the transport `ideal`.
"""

from __future__ import annotations

from typing import Literal

import torch

from otafl.core.contracts import Coefficients, Link
from otafl.power.base import Constraint, PowerPolicy
from otafl.power.scalars import TINY, align_phases, get_transmitter_mask, invert_channel


class Genie(PowerPolicy):
    """Unit gains without power constraint. Study: `studies/on_device/on_device.yaml`."""

    name: Literal["genie"] = "genie"

    @property
    def power_constraint(self) -> Constraint:
        return "none"

    @property
    def is_inversion(self) -> bool:
        return True

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        r"""Invert all channels at the mean received power.

        Notes
        -----
        .. math::

            \eta = \frac{\sum_k P_k g_k}{\sum_k m_k}
        """
        active = get_transmitter_mask(link)
        received = (link.budget[:, None] * link.h.abs().square() * active).sum(-1, keepdim=True)
        needed = (link.symbol_power * active).sum(-1, keepdim=True)
        root_eta = (received / needed.clamp_min(TINY)).sqrt()
        root_eta = torch.where(received > 0, root_eta, 1.0)  # no device transmits
        return None, align_phases(link, invert_channel(root_eta, link), root_eta, active)
