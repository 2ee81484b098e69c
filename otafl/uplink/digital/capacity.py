"""Reckon what the channels of a digital uplink carry, and what devices believe that they do.

A channel use carries at most rate_factor log2(1 + SNR / gap) bits, the SNR that after maximum-ratio
combining of the server's antennas, in the mean over the channel's cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.core.contracts import NOISE_VARIANCE, ChannelState, Hyper
from otafl.core.units import db_to_linear
from otafl.csi.base import Csi
from otafl.uplink.impairments.impairments import Impairments


@dataclass(frozen=True)
class Links:
    """Hold the bits a channel use of each device [S, K]: what it believes that its channel carries,
    and what it does.

    strength: [S, K] |h|^2 that it believes in as the slot begins, mean over antennas and
    sub-carriers. snr: [S, K] true, that of a flat channel that carries as much. blocks: coherence
    blocks that pilots are sent in. sure: the host knows that no rate is above what is carried.
    """

    believed: Tensor
    carried: Tensor
    strength: Tensor
    snr: Tensor
    blocks: int
    sure: bool


class Capacity:
    """Reckon the links of S trials by the settings of transport digital."""

    def __init__(self, settings: Any, hyper: Hyper, csi: Csi, impairments: Impairments) -> None:
        self._settings, self._csi, self._impairments = settings, csi, impairments
        self._gap = db_to_linear(hyper["snr_gap_db"])[:, None]
        self._margin = db_to_linear(hyper["margin_db"])[:, None]
        self._factor = hyper["rate_factor"][:, None]

    def links(self, channel: ChannelState, power: Tensor, reals: int, round: int) -> Links:
        """Return the links of a slot.

        Parameters
        ----------
        channel : h [S, K, A, B, F].
        power : [S, K], received in a device's own band over the noise in it, but for fading.
        reals : of the payload, which lasts as many channel uses when blocks are counted.
        round : of the estimate and of interference.
        """
        settings, impairments = self._settings, self._impairments
        state = channel.extend_to(max(1, reals))
        needs_estimate = settings.outage or settings.coding == "ldpc" or settings.gain_threshold > 0
        estimate = self._csi.estimate(state, channel.gain, round) if needs_estimate else state
        h, h_hat, blocks = state.flatten(3), estimate.flatten(3), state.shape[3]
        strength = estimate[:, :, :, 0].abs().square().flatten(2).mean(2)
        combined = power[..., None] * h_hat.abs().square().sum(2)
        exact = estimate is state and not (impairments.disturbs or impairments.grows)
        true = combined if exact else self._received(h, h_hat, power, round)
        carried = self._factor * bits_a_use(true / self._gap[..., None])
        flat_snr = torch.expm1(torch.log1p(true).mean(-1))
        if not settings.outage:  # retransmissions find out what the channel carries
            return Links(carried, carried, strength, flat_snr, blocks, True)
        known = impairments.compute_known_noise(round) / NOISE_VARIANCE
        lowered = combined / (known[:, None] * self._gap * self._margin)[..., None]
        sure = exact and settings.rate == "shannon"
        believed = self._factor * bits_a_use(lowered)
        return Links(believed, carried, strength, flat_snr, blocks, sure)

    def _received(self, h: Tensor, h_hat: Tensor, power: Tensor, round: int) -> Tensor:
        """Return the SNR [S, K, cells] after combining h [S, K, A, cells] by its estimate."""
        norm = torch.linalg.vector_norm(h_hat, dim=2, keepdim=True)
        combiner = h_hat / norm.clamp_min(1e-30)
        gain = (combiner.conj() * h).sum(2).abs().square()
        flat = combiner.permute(0, 1, 3, 2).flatten(1, 2)  # [S, K * cells, A]
        noise = self._impairments.noise(flat, round).view_as(gain) / NOISE_VARIANCE
        return power[..., None] * gain / noise


def bits_a_use(snr: Tensor) -> Tensor:
    """Return the mean of log2(1 + SNR) over the cells, [S, K] of [S, K, cells]."""
    return torch.log1p(snr).mean(-1) / torch.log(get_constant(2.0, snr.dtype, snr.device))
