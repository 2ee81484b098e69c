"""Channel state information: what devices and server believe h to be. The transport uses h
itself."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.channels.config import ErrorCsiConfig, PerfectCsiConfig
from otafl.contracts import Hyper
from otafl.rng import Streams


class PerfectCsi:
    """The estimate is h."""

    def __init__(self, config: PerfectCsiConfig, streams: Streams, hyper: Hyper) -> None:
        self.variance = torch.zeros(streams.size, dtype=streams.dtype, device=streams.device)

    def estimate(self, h: Tensor, round: int) -> Tensor:
        return h


class ErrorCsi:
    """The estimate is h + e, e ~ CN(0, variance), independent over devices and rounds."""

    def __init__(self, config: ErrorCsiConfig, streams: Streams, hyper: Hyper) -> None:
        self.variance = hyper["variance"]
        self._streams = streams

    def estimate(self, h: Tensor, round: int) -> Tensor:
        trials, devices = h.shape[:2]
        pair = torch.arange(trials * devices, device=h.device)
        trial, device = pair // devices, pair % devices
        size = (*h.shape[2:], 2)
        draw = self._streams.device_normal("csi_error", round, trial, device, size)
        error = torch.view_as_complex(draw).view(h.shape)
        return h + error * (self.variance / 2.0).sqrt().view(-1, *[1] * (h.dim() - 1))
