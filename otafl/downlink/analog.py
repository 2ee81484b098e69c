"""Uncoded broadcast of the parameters, with independent noise at each device.

The server sends the model's real numbers x, one per symbol in `channel.bandwidth_hz`, scaled to a
mean power P by their mean square m, which is sent too. Device k knows its channel h_k and receives

    |h_k| sqrt(P / m) x + n,   n ~ N(0, sigma^2 / 2),

with noise as in the uplink, and gamma = P / sigma^2. It divides by the channel, which gives x + e
with e of variance m / (2 gamma |h_k|^2). Or it uses the linear MMSE estimate, s (x + e) with s = 2
gamma |h_k|^2 / (1 + 2 gamma |h_k|^2). Its squared error m (1 - s) is bounded in a deep fade. A
broadcast that differs between devices is sent to one device after the other. Integers in it, and
the mean square, are sent digitally.

References
----------
Amiri, Gunduz, Kulkarni, Poor 2022, "Convergence of Federated Learning Over a Noisy Downlink".
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import Broadcast, Cohort, Tensors, unsqueeze_like
from otafl.core.rng import declare_purpose
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.downlink.base import (
    DOWNLINK,
    WORD,
    Delivery,
    Distort,
    Downlink,
    DownlinkSetup,
    count_copies,
)

FADING = declare_purpose("downlink_fading", __name__)


class AnalogDownlink(Downlink):
    """Uncoded broadcast over a noisy channel."""

    class Settings(Downlink.Settings):
        name: Literal["analog"] = "analog"
        snr_db: Decibels = declare_stackable(20.0)
        """mean power of a broadcast symbol over the complex noise variance at a device in dB, equal
        for all devices except for fading"""
        snr_growth: float = declare_stackable(0.0, ge=0, le=8)
        """power of the round by which the SNR grows, (t + 1)^growth: 2 adds 20 log10(t + 1) dB in
        round t"""
        fading: bool = False
        """whether the downlink has Rayleigh fading, which the devices know"""
        estimator: Literal["inversion", "mmse"] = "inversion"
        """estimate of the parameters: division by the channel (inversion), which is very noisy in a
        deep fade, or a linear estimate with the smallest mean squared error (mmse)"""

    def __init__(self, settings: Settings, setup: DownlinkSetup) -> None:
        super().__init__(settings, setup)
        self._snr = db_to_linear(setup.hyper["snr_db"])
        self._growth = setup.hyper["snr_growth"]
        self._grows = bool(self._growth.any())
        self._bandwidth_hz = setup.budget.bandwidth_hz.cpu().numpy().astype(float)

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Delivery:
        """Send the floating-point tensors uncoded, and the other numbers digitally."""
        analogue = {n: b for n, b in broadcast.tensors.items() if b.is_floating_point()}
        num_coordinates = Broadcast(analogue).num_coordinates
        words = WORD * (broadcast.num_sent - num_coordinates + 1)
        times = count_copies(broadcast, cohort)
        return Delivery(
            broadcast,
            times * (num_coordinates / self._bandwidth_hz + words / self.setup.rate_bps),
            times * words,
            self._add_noise(analogue, broadcast.per_device, num_coordinates, cohort, round),
        )

    def _add_noise(
        self, blocks: Tensors, per_device: bool, num_coordinates: int, cohort: Cohort, round: int
    ) -> Distort | None:
        """Return the function that replaces x by s (x + e) at the rows; None without tensors.

        The tensors are [S, *shape], or [N, *shape] if they differ between devices.
        """
        if not blocks:
            return None
        streams = self.setup.streams
        norms = [
            torch.linalg.vector_norm(block.flatten(1), dim=1, dtype=torch.float64)
            for block in blocks.values()
        ]
        power = torch.stack(norms).square().sum(0) / max(1, num_coordinates)
        if not per_device:
            power = power[cohort.trial]
        snr = 2.0 * self._snr[cohort.trial]  # of a real number
        if self._grows:
            snr = snr * (self._growth[cohort.trial] * math.log1p(round)).exp()
        if self.settings.fading:
            draw = streams.draw_device_normal(FADING, round, cohort.trial, cohort.device, (2,))
            snr = snr * (draw.square().sum(1) / 2.0)  # |h|^2
        spread = (power / snr).sqrt().to(snr.dtype)
        shrink = snr / (1.0 + snr) if self.settings.estimator == "mmse" else None

        def distort(blocks: Tensors, cohort: Cohort, place: Tensor) -> None:
            pair = cohort.trial, cohort.device
            for name, block in blocks.items():
                if block.is_floating_point():
                    z = streams.draw_device_normal(DOWNLINK / name, round, *pair, block.shape[1:])
                    block.addcmul_(unsqueeze_like(spread[place], block), z)
                    if shrink is not None:
                        block.mul_(unsqueeze_like(shrink[place], block))

        return distort
