"""Channel state information: what devices and server believe h to be. The transport uses h
itself."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from otafl.channels.config import ErrorCsiConfig, PerfectCsiConfig
from otafl.core.contracts import Channel, Hyper, LinkBudget
from otafl.core.rng import Streams


class PerfectCsi:
    """The estimate is h."""

    pilot_symbols: ClassVar[int] = 0

    def __init__(
        self,
        config: PerfectCsiConfig,
        channel: Channel,
        budget: LinkBudget,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self.variance = torch.zeros(streams.size, dtype=streams.dtype, device=streams.device)

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h


class ErrorCsi:
    """The estimate is h + e, e ~ CN(0, variance), independent over devices and rounds."""

    pilot_symbols: ClassVar[int] = 0

    def __init__(
        self,
        config: ErrorCsiConfig,
        channel: Channel,
        budget: LinkBudget,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self.variance = hyper["variance"]
        self._streams = streams

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        variance = self.variance.view(-1, *[1] * (h.dim() - 1))
        return h + device_errors(self._streams, "csi_error", round, h, variance)


def device_errors(
    streams: Streams, purpose: str, round: int, like: Tensor, variance: Tensor
) -> Tensor:
    """CN(0, variance) of the shape of `like` [S, K, ...] complex, each device's own part of the
    stream."""
    trials, devices = like.shape[:2]
    pair = torch.arange(trials * devices, device=like.device)
    trial, device = pair // devices, pair % devices
    draw = streams.device_normal(purpose, round, trial, device, (*like.shape[2:], 2))
    return torch.view_as_complex(draw).view(like.shape) * (variance / 2.0).sqrt()
