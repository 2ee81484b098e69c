"""Channels of given states, and links over them, for tests of channel state information."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otafl.channels.base import Channel
from otafl.core import registry
from otafl.core.contracts import ChannelState, LinkBudget
from otafl.core.rng import Streams
from otafl.csi.base import Csi

S, K = 2, 3

DOUBLE = torch.float64

LEVEL = 1e-4


class Recorded:
    """A channel of given states, which says which were asked for."""

    correlation_rounds = 1
    num_sounded_paths = 0

    def __init__(self, *states: ChannelState) -> None:
        self.states = states
        self.asked: list[int] = []

    def get_state(self, round: int) -> ChannelState:
        self.asked.append(round)
        return self.states[round]

    def get_large_scale_state(self, round: int) -> ChannelState:
        return self.states[round]


def compute_link_budget(budget: Tensor, gain: Tensor) -> LinkBudget:
    ones = torch.ones(len(budget), dtype=budget.dtype)
    return LinkBudget(budget, gain, ones, ones, ones.bool())


def draw_normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex128) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def make_csi(
    name: str, channel: Any, link: LinkBudget, streams: Streams, hyper: Any = None, **fields: Any
) -> Any:
    """What is known of a channel by these settings; hyper: stackable fields, [S]."""
    section = registry.load_settings_class("csi", name)(**fields)
    made: Csi = registry.make_component("csi", section, channel, link, streams, hyper or {})
    return made


def make_links(budget: Tensor, gain: Tensor, **fields: Any) -> tuple[Channel, LinkBudget, Streams]:
    """Rayleigh fading of devices of these budgets and gains, [S, K] each."""
    streams = Streams([3] * len(budget), range(len(budget)), dtype=DOUBLE)
    section = registry.load_settings_class("channel", "rayleigh")(**fields)
    link = compute_link_budget(budget, gain)
    made: Channel = registry.make_component("channel", section, link, budget.shape[1], streams, {})
    return made, link, streams
