"""Capacity of the channels of a digital uplink, as it is and as devices estimate it.

A channel use carries at most

    log2(1 + SNR / gap)

bits, mean over the channel's cells, with the SNR after maximum-ratio combining of the server's
antennas. Otherwise its rate is that of a modulation and coding scheme of 5G NR up to 64-QAM: 3GPP
TS 38.214, table 5.1.3.1-1. Reserved rows are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import NOISE_VARIANCE, ChannelState, Hyper
from otafl.core.tensors import get_constant
from otafl.core.units import db_to_linear
from otafl.csi.base import Csi
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


@dataclass(frozen=True)
class Sounding:
    """True and estimated channels of a slot.

    Parameters
    ----------
    state, estimate : Tensor, complex [S, K, A, B, F]
        True channels h, and the devices' estimates of them; the same tensor if no estimate counts.
    strength : Tensor, float [S, K]
        Estimated |h|^2 at the start of the slot, mean over antennas and sub-carriers, without
        large-scale gain.
    """

    state: Tensor
    estimate: Tensor
    strength: Tensor


@dataclass(frozen=True)
class Links:
    """Bits per channel use that the channel of each device carries.

    Parameters
    ----------
    believed, carried : Tensor, float [S, K]
        Estimated and true bits per channel use.
    snr : Tensor, float [S, K]
        True SNR of a flat channel with the same capacity, linear.
    blocks : int
        Coherence blocks in which pilots are sent.
    sure : bool
        Whether it is known on the host that no rate is above the capacity.
    """

    believed: Tensor
    carried: Tensor
    snr: Tensor
    blocks: int
    sure: bool


class Capacity:
    """Links of S trials by the settings of the transport `digital`.

    Parameters
    ----------
    settings : Digital.Settings
        Settings that all trials share.
    hyper : Hyper
        Stackable fields, [S] each.
    csi : Csi
        Channel estimates of the devices.
    impairments : Impairments
        Interference.
    """

    def __init__(self, settings: Any, hyper: Hyper, csi: Csi, impairments: Impairments) -> None:
        self._settings, self._csi, self._impairments = settings, csi, impairments
        self._gap = db_to_linear(hyper["snr_gap_db"])[:, None]
        self._margin = db_to_linear(hyper["margin_db"])[:, None]

    def sound(self, channel: ChannelState, num_coordinates: int, round: int) -> Sounding:
        """Estimate the channels of a slot.

        Parameters
        ----------
        channel : ChannelState
            Channels h [S, K, A, B, F].
        num_coordinates : int
            Coordinates of the payload, which is taken to last as many channel uses.
        round : int
            Round of the estimates.

        Returns
        -------
        Sounding
            True and estimated channels.
        """
        state = channel.extend_to(max(1, num_coordinates))
        estimate = self._csi.estimate(state, channel.gain, round)
        strength = estimate[:, :, :, 0].abs().square().flatten(2).mean(2)
        return Sounding(state, estimate, strength)

    def links(self, sounding: Sounding, power: Tensor, round: int) -> Links:
        """Compute the links of a slot.

        Parameters
        ----------
        sounding : Sounding
            True and estimated channels.
        power : Tensor, float [S, K]
            Mean received power in a device's own band over the noise in it, before fading.
        round : int
            Round of interference.

        Returns
        -------
        Links
            Estimated and true bits per channel use.
        """
        impairments = self._impairments
        state, estimate = sounding.state, sounding.estimate
        h, h_hat, blocks = state.flatten(3), estimate.flatten(3), state.shape[3]
        combined = power[..., None] * h_hat.abs().square().sum(2)
        exact = estimate is state and not (impairments.adds_noise or impairments.grows)
        true = combined if exact else self._compute_snr(h, h_hat, power, round)
        carried = bits_a_use(true / self._gap[..., None])
        flat_snr = torch.expm1(torch.log1p(true).mean(-1))
        known = impairments.compute_known_noise(round) / NOISE_VARIANCE
        lowered = combined / (known[:, None] * self._gap * self._margin)[..., None]
        sure = exact and self._settings.rate == "shannon"
        return Links(bits_a_use(lowered), carried, flat_snr, blocks, sure)

    def _compute_snr(self, h: Tensor, h_hat: Tensor, power: Tensor, round: int) -> Tensor:
        """Return the SNR [S, K, cells] after combining h [S, K, A, cells] by its estimate."""
        norm = torch.linalg.vector_norm(h_hat, dim=2, keepdim=True)
        combiner = h_hat / norm.clamp_min(1e-30)
        gain = (combiner.conj() * h).sum(2).abs().square()
        flat = combiner.permute(0, 1, 3, 2).flatten(1, 2)  # [S, K * cells, A]
        noise = draw_variance(self._impairments, flat, round).view_as(gain) / NOISE_VARIANCE
        return power[..., None] * gain / noise


def bits_a_use(snr: Tensor) -> Tensor:
    """Compute the mean of log2(1 + SNR) over the cells, [S, K] of [S, K, cells]."""
    return torch.log1p(snr).mean(-1) / torch.log(get_constant(2.0, snr.dtype, snr.device))
