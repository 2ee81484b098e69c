"""Define the contract of channel state information: what devices and server believe h to be.

The transport uses h itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.channels.base import Channel
from otafl.core import settings
from otafl.core.contracts import Hyper, LinkBudget
from otafl.core.renamed import Renamed
from otafl.core.rng import Purpose, Streams


class Csi(Renamed, ABC):
    """Estimate the channel.

    Parameters
    ----------
    settings : of its class `Settings`.
    channel : the true one.
    budget : of the devices' powers.
    streams : of S trials.
    hyper : the stackable fields, [S].
    """

    is_perfect: ClassVar[bool] = False
    """The estimate is the channel itself."""

    class Settings(settings.Settings):
        """Describe the section `csi` of a scenario."""

    def __init__(
        self,
        settings: Any,
        channel: Channel,
        budget: LinkBudget,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self.settings, self.channel, self.budget = settings, channel, budget
        self.streams, self.hyper = streams, hyper

    @property
    def variance(self) -> Tensor | None:
        """Return the variance [S] of an additive complex normal error that is independent of h and
        the same for all devices of a trial; None where the error is of another kind."""
        return None

    @property
    def num_pilot_symbols(self) -> int:
        """Return the channel uses of a device's pilots in each coherence block."""
        return 0

    @abstractmethod
    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        """Return what is believed of the channel in a round.

        Parameters
        ----------
        h : [S, K, A, B, F] complex, the channel without its large-scale gain.
        gain : [S, K], linear large-scale power gain.

        Returns
        -------
        The estimate, of the shape of h.
        """

    @abstractmethod
    def estimate_paths(
        self, paths: Callable[[int], Tensor], gain: Tensor, round: int
    ) -> Tensor | None:
        """Return what is believed in a round of paths that make up the channel
        (`Channel.num_sounded_paths`), each by itself.

        Parameters
        ----------
        paths : round -> [S, K, B, ...] complex, without large-scale gain, of the B coherence blocks
            that are asked for.
        gain : [S, K], linear large-scale power gain.

        Returns
        -------
        The estimate, of the shape of the paths, whose blocks do not depend on how many there are;
        None where it is the truth.
        """


def draw_device_errors(
    streams: Streams, purpose: str, round: int, like: Tensor, variance: Tensor
) -> Tensor:
    """Draw CN(0, variance) of the shape of `like` [S, K, ...] complex, for each device its part of
    the stream."""
    trials, devices = like.shape[:2]
    pair = torch.arange(trials * devices, device=like.device)
    trial, device = pair // devices, pair % devices
    draw = streams.draw_device_normal(purpose, round, trial, device, (*like.shape[2:], 2))
    return torch.view_as_complex(draw).view(like.shape) * (variance / 2.0).sqrt()


def draw_path_errors(
    streams: Streams, purpose: Purpose, round: int, like: Tensor, variance: Tensor
) -> Tensor:
    """Draw CN(0, variance) of the shape of `like` [S, K, B, ...] complex; blocks 2^c - 1 to
    2^(c+1) - 2 are drawn together, so that a block is the same however many there are."""
    blocks, *rest = like.shape[2:]
    parts = [
        draw_device_errors(
            streams, purpose / c, round, like[:, :, :1].expand(-1, -1, 1 << c, *rest), variance
        )
        for c in range(blocks.bit_length())
    ]
    return torch.cat(parts, 2)[:, :, :blocks]
