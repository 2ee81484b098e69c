"""Uniform quantisation of each block of each device between its smallest and largest value: Q(x)
= beta + alpha round((2^b - 1)(x - beta)/alpha)/(2^b - 1), beta = min, alpha = max - min (FedRLR,
baseline 4). The two ends travel as floats beside the block."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.config import UniformConfig
from otafl.codecs.rows import shapes_of
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.rng import Streams
from otafl.models.base import unflatten


class Uniform:
    def __init__(self, config: UniformConfig, hyper: Hyper, streams: Streams) -> None:
        self.config = config
        self.word_bits = config.bits
        self._levels = 2**config.bits - 1

    def init(self, payload: Payload) -> Blocks:
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        return tuple(
            self._coded(group) if group.route == "uplink" else group for group in payload
        ), memory

    def _coded(self, group: Group) -> Group:
        mask = group.mask or {}
        blocks = {n: quantise(b, self._levels, mask.get(n)) for n, b in group.blocks.items()}
        return replace(group, blocks=blocks)

    def decode(self, received: Received) -> Received:
        return received

    def bits(self, group: Group) -> float:
        return float(self.config.bits * group.reals + 64 * len(group.blocks))

    def words(self, group: Group) -> Tensor:
        """[n, P] int64: the level of each real above its block's smallest value."""
        columns = []
        for name, block in group.blocks.items():
            low, step = _grid(block, self._levels, (group.mask or {}).get(name))
            safe = step.where(step > 0, 1.0)
            level = ((block.flatten(1) - low) / safe).round().clamp(0, self._levels)
            columns.append(level.to(torch.int64))
        return torch.cat(columns, 1)

    def values(self, group: Group, words: Tensor) -> Blocks:
        """The blocks at these levels [n, P]."""
        blocks = unflatten(words, shapes_of(group))
        out = {}
        for name, block in group.blocks.items():
            low, step = _grid(block, self._levels, (group.mask or {}).get(name))
            level = blocks[name].flatten(1).to(block.dtype)
            out[name] = (low + step * level).view_as(block)
        return out


def quantise(block: Tensor, levels: int, mask: Tensor | None = None) -> Tensor:
    """Each row of [n, *shape] rounded to `levels` + 1 equidistant values between its extremes (of
    what it knows, where there is a mask); a constant row stays as it is."""
    low, step = _grid(block, levels, mask)
    rows = block.flatten(1)
    safe = step.where(step > 0, 1.0)
    return (low + step * ((rows - low) / safe).round()).view_as(block)


def _grid(block: Tensor, levels: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Smallest value and step of each row, [n, 1]."""
    rows = block.flatten(1)
    if mask is None:
        low, high = rows.aminmax(dim=1, keepdim=True)
        return low, (high - low) / levels
    knows = mask.expand_as(block).flatten(1) > 0
    low = rows.where(knows, torch.inf).amin(1, keepdim=True)
    high = rows.where(knows, -torch.inf).amax(1, keepdim=True)
    low, high = low.where(low <= high, 0.0), high.where(low <= high, 0.0)
    return low, (high - low) / levels
