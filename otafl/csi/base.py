"""Contract of channel state information, the estimate of h by devices and server.

The transport uses the true h.
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
from otafl.core.rng import Purpose, Streams


class Csi(ABC):
    """Estimate of the channel, which devices and server share.

    A subclass has a class `Settings`, and returns estimates in `estimate` and `estimate_paths`.
    `otafl list NAME` prints an example scenario of each built-in one.

    Parameters
    ----------
    settings : Settings
        Settings of the component; trials differ only in stackable fields.
    channel : Channel
        The true channel.
    budget : LinkBudget
        Power budgets of the devices.
    streams : Streams
        Random streams of S trials.
    hyper : Hyper
        Stackable fields, [S] each.
    """

    is_perfect: ClassVar[bool] = False
    """Whether the estimate is the channel itself, for which an uplink over the air does not ask."""

    class Settings(settings.Settings):
        """Section `csi` of a scenario."""

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
        """Variance [S] of the error if it is additive, complex normal and independent of h.

        It is the same for all devices of a trial; None for other errors.
        """
        return None

    @property
    def num_pilot_symbols(self) -> int:
        """Channel uses of a device's pilots in each coherence block."""
        return 0

    @abstractmethod
    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        """Estimate the channel in a round.

        Parameters
        ----------
        h : Tensor, complex [S, K, A, B, F]
            Channel without its large-scale gain.
        gain : Tensor, float [S, K]
            Large-scale power gain, linear.
        round : int
            The round.

        Returns
        -------
        Tensor, complex [S, K, A, B, F]
            The estimate, without large-scale gain.
        """

    @abstractmethod
    def estimate_paths(
        self, paths: Callable[[int], Tensor], gain: Tensor, round: int
    ) -> Tensor | None:
        """Estimate each of the paths that make up the channel (`Channel.num_sounded_paths`).

        Parameters
        ----------
        paths : callable
            Maps a round to the paths of B coherence blocks, complex [S, K, B, ...], without
            large-scale gain.
        gain : Tensor, float [S, K]
            Large-scale power gain, linear.
        round : int
            The round.

        Returns
        -------
        Tensor, complex [S, K, B, ...], or None
            The estimate, in which a block does not depend on their number; None if it is exact.
        """


def draw_device_errors(
    streams: Streams, purpose: str, round: int, like: Tensor, variance: Tensor
) -> Tensor:
    """Draw CN(0, variance) in the shape of `like`, complex [S, K, ...], by device."""
    pairs = streams.list_pairs(like.shape[1])
    draw = streams.draw_device_normal(purpose, round, *pairs, (*like.shape[2:], 2))
    return torch.view_as_complex(draw).view(like.shape) * (variance / 2.0).sqrt()


def draw_path_errors(
    streams: Streams, purpose: Purpose, round: int, like: Tensor, variance: Tensor
) -> Tensor:
    """Draw CN(0, variance) in the shape of `like`, complex [S, K, B, ...].

    Blocks 2^c - 1 to 2^(c+1) - 2 are drawn together, so that a block does not depend on their
    number.
    """
    blocks, *rest = like.shape[2:]
    parts = [
        draw_device_errors(
            streams, purpose / c, round, like[:, :, :1].expand(-1, -1, 1 << c, *rest), variance
        )
        for c in range(blocks.bit_length())
    ]
    return torch.cat(parts, 2)[:, :, :blocks]
