"""Capacity of the channels of a digital uplink, as it is and as devices estimate it.

A channel use carries at most

    log2(1 + SNR / gap)

bits, mean over the channel's cells, with the SNR after maximum-ratio combining of the server's
antennas. Otherwise its rate is that of a modulation and coding scheme of 5G NR up to 64-QAM: 3GPP
TS 38.214, table 5.1.3.1-1. Reserved rows are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import NOISE_VARIANCE
from otafl.core.tensors import get_constant
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.noise import draw_variance


class Mcs(NamedTuple):
    """Modulation and coding scheme.

    Parameters
    ----------
    order : int
        Bits of a QAM symbol, Q_m.
    rate_1024 : float
        Target code rate times 1024.
    """

    order: int
    rate_1024: float

    @property
    def efficiency(self) -> float:
        """Information bits per channel use."""
        return self.order * self.rate_1024 / 1024.0


MCS_TABLE = tuple(
    Mcs(order, rate)
    for order, rates in (
        (2, (120, 157, 193, 251, 308, 379, 449, 526, 602, 679)),
        (4, (340, 378, 434, 490, 553, 616, 658)),
        (6, (438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948)),
    )
    for rate in rates
)
"""Schemes of TS 38.214, table 5.1.3.1-1; a scheme's position is its I_MCS."""


def compute_snr(
    h: Tensor, h_hat: Tensor, power: Tensor, impairments: Impairments, round: int
) -> Tensor:
    """Compute the SNR after combining the server's antennas by estimates of the channels.

    Parameters
    ----------
    h, h_hat : Tensor, complex [S, K, A, cells]
        True channels, and their estimates.
    power : Tensor, float [S, K]
        Mean received power over the noise, before fading.
    impairments : Impairments
        Interference.
    round : int
        Round of interference.

    Returns
    -------
    Tensor, float [S, K, cells]
        The SNR.
    """
    norm = torch.linalg.vector_norm(h_hat, dim=2, keepdim=True)
    combiner = h_hat / norm.clamp_min(1e-30)
    gain = (combiner.conj() * h).sum(2).abs().square()
    flat = combiner.permute(0, 1, 3, 2).flatten(1, 2)  # [S, K * cells, A]
    noise = draw_variance(impairments, flat, round).view_as(gain) / NOISE_VARIANCE
    return power[..., None] * gain / noise


def bits_a_use(snr: Tensor) -> Tensor:
    """Compute the mean of log2(1 + SNR) over the cells, [S, K] of [S, K, cells]."""
    return torch.log1p(snr).mean(-1) / torch.log(get_constant(2.0, snr.dtype, snr.device))
