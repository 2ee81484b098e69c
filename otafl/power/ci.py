"""Channel inversion at the gain of the weakest device.

With eta = min_k P_k g_k / m_k and p_k = sqrt(eta) / h_k, every device has the effective gain c_k =
1, and only noise causes an error.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Link
from otafl.power.base import PowerPolicy
from otafl.power.scalars import (
    TINY,
    align_phases,
    compute_amplitude_bound,
    get_transmitter_mask,
    invert_channel,
)


class ChannelInversion(PowerPolicy):
    """Channel inversion. Study: `studies/field/field.yaml`."""

    receiver: ClassVar[str] = "uniform_forcing"

    name: Literal["ci"] = "ci"

    @property
    def is_inversion(self) -> bool:
        return True

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        """Compute the inversion of `invert_by_weakest`."""
        return None, invert_by_weakest(link)


def invert_by_weakest(link: Link) -> Coefficients:
    r"""Invert the channels of all transmitters at the level of the weakest one.

    Parameters
    ----------
    link : Link
        Estimated channels [S, Q, K], budgets and powers.

    Returns
    -------
    Coefficients
        Scalars with effective gain c_k = 1.

    Notes
    -----
    .. math::

        p_k = \sqrt{\eta} / h_k, \quad \eta = \min_k P_k g_k / m_k
    """
    active = get_transmitter_mask(link)
    reach = torch.where(active, compute_amplitude_bound(link) * link.h.abs(), math.inf)
    root_eta = reach.amin(-1, keepdim=True).clamp_min(TINY)
    root_eta = torch.where(root_eta.isinf(), 1.0, root_eta)  # all are silent
    return align_phases(link, invert_channel(root_eta, link), root_eta, active)
