"""Channel inversion at the gain of the weakest device, with one antenna and behind a combiner."""

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
    """Channel inversion at the gain of the weakest device.

    With eta = min_k P_k g_k / m_k and p_k = sqrt(eta) / h_k, every device has the effective gain
    c_k = 1, and only noise causes an error.
    """

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


class MultiAntennaChannelInversion(PowerPolicy):
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

    receiver: ClassVar[str] = "uniform_forcing"
    example: ClassVar = {"channel.antennas": 4}

    name: Literal["multi_antenna_ci"] = "multi_antenna_ci"

    @property
    def is_inversion(self) -> bool:
        return True

    def compute_coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        """Compute the inversion of `invert_by_weakest` on the scalar channels f^H h_k."""
        return None, invert_by_weakest(link)
