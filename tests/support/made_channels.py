"""Channels of a few trials, made as a run makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from otafl import channels
from otafl.channels.ofdm import Pairs
from otafl.core import registry
from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams

FAR = 2**40

MOVING: dict[str, Any] = {
    "speed_kmh": 20.0,
    "carrier_hz": 2.4e9,
    "round_interval_s": 0.7,
    "block_symbols": 500,
    "bandwidth_hz": 2e5,
}


def make_channel(
    name: str,
    devices: int,
    trials: Sequence[int] = (0,),
    dtype: torch.dtype = torch.float64,
    *,
    seed: int = 0,
    each: Sequence[dict[str, Any]] | None = None,
    **settings: Any,
) -> Any:
    """A channel of these trials; `each` has settings of their own."""
    kind = registry.load_settings_class("channel", name)
    sections = [kind(name=name, **(settings | own)) for own in each or [{}] * len(trials)]
    streams = Streams([seed] * len(trials), trials, dtype=dtype)
    return channels.build(sections, devices, streams)[1]


def make_pairs(trials: int, devices: int) -> Pairs:
    streams = Streams([3] * trials, range(trials), dtype=torch.float64)
    return Pairs(streams, devices, torch.ones(trials))


def take_blocks(state: ChannelState, count: int) -> Tensor:
    """[S, K, A, count]."""
    assert state.blocks_fn is not None
    return state.blocks_fn(count)[..., 0]
