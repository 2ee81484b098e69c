"""Codecs of one trial, and payloads for them."""

from __future__ import annotations

from typing import Any

import torch

from otafl.codecs.quantisers import Uniform
from otafl.core.contracts import Cohort, Context, Group, Payload, Tensors
from otafl.core.rng import Streams

STREAMS = Streams([0], [0], dtype=torch.float64)


def make_cohort(devices: int) -> Cohort:
    zero, device = torch.zeros(devices, dtype=torch.int64), torch.arange(devices)
    weight = torch.full((devices,), 1.0 / devices)
    return Cohort(zero, device, weight, zero, zero, zero, weight > 0, (devices,), devices)


def make_codec(cls: Any, config: Any, streams: Streams = STREAMS) -> Any:
    return cls(config, {}, streams)


def encode(codec: Any, payload: Payload, memory: Tensors | None = None, round: int = 0) -> Any:
    """Of as many devices as the first group has rows, or names in `rows`."""
    first = payload[0]
    rows = len(next(iter(first.tensors.values())))
    if first.row_index is not None:
        rows = int(first.row_index.max()) + 1
    own = codec.init(payload) if memory is None else memory
    return codec.encode(payload, own, make_cohort(rows), round, STREAMS)


def acknowledge(
    codec: Any, payload: Payload, memory: Tensors, delivered_masks: torch.Tensor | None = None
) -> Tensors:
    """The memory once what was sent has come: of all N devices, or heard [N, 1] or [N, P] bool."""
    rows = len(next(iter(memory.values())))
    every = torch.ones(rows, 1, dtype=torch.bool) if delivered_masks is None else delivered_masks
    context = Context(make_cohort(rows), {}, STREAMS, 0)
    out: Tensors = codec.on_ack(memory, payload, (every,) * len(payload), context)
    return out


def draw_normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quantise(block: torch.Tensor, bits: int) -> torch.Tensor:
    """What codec uniform makes of a block [n, *shape]."""
    (coded,), _ = encode(make_codec(Uniform, Uniform.Settings(bits=bits)), (Group({"x": block}),))
    return coded.tensors["x"]
