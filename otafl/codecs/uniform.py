"""Quantise each block of each device uniformly between its smallest and largest value.

Q(x) = beta + alpha round((2^b - 1)(x - beta)/alpha)/(2^b - 1), beta = min, alpha = max - min, as in
FedRLR's baseline 4. The two ends travel as floats beside the block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec, Coded
from otafl.codecs.rows import shapes_of
from otafl.core import settings
from otafl.core.contracts import Blocks, Context, Group, Hyper
from otafl.core.rng import Streams
from otafl.models.base import unflatten


class Uniform(Codec):
    class Settings(settings.Settings):
        name: Literal["uniform"] = "uniform"
        bits: int = Field(8, ge=1, le=24, description="bits a real")

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self.word_bits = settings.bits
        self._levels = 2**settings.bits - 1

    def encoded(self, group: Group, index: int, memory: Blocks, context: Context) -> Coded:
        blocks = {name: quantise(block, self._levels, mask) for name, block, mask in _masked(group)}
        return replace(group, blocks=blocks), memory

    def bits(self, group: Group) -> float:
        return float(self.settings.bits * group.reals + 64 * len(group.blocks))

    def words(self, group: Group) -> Tensor:
        """Return the level of each real above its block's smallest value."""
        columns = []
        for _, block, mask in _masked(group):
            low, step = _grid(block, self._levels, mask)
            safe = step.where(step > 0, 1.0)
            level = ((block.flatten(1) - low) / safe).round().clamp(0, self._levels)
            columns.append(level.to(torch.int64))
        return torch.cat(columns, 1)

    def values(self, group: Group, words: Tensor) -> Blocks:
        given = unflatten(words, shapes_of(group))
        out = {}
        for name, block, mask in _masked(group):
            low, step = _grid(block, self._levels, mask)
            level = given[name].flatten(1).to(block.dtype)
            out[name] = (low + step * level).view_as(block)
        return out


def quantise(block: Tensor, levels: int, mask: Tensor | None = None) -> Tensor:
    """Round each row of [n, *shape] to `levels` + 1 equidistant values between its extremes (of
    what it knows, where there is a mask); a constant row stays as it is."""
    low, step = _grid(block, levels, mask)
    rows = block.flatten(1)
    safe = step.where(step > 0, 1.0)
    return (low + step * ((rows - low) / safe).round()).view_as(block)


def _masked(group: Group) -> list[tuple[str, Tensor, Tensor | None]]:
    """List the name, block and mask of each block; None where it has no mask."""
    masks = group.mask or {}
    return [(name, block, masks.get(name)) for name, block in group.blocks.items()]


def _grid(block: Tensor, levels: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the smallest value and the step of each row, [n, 1]."""
    rows = block.flatten(1)
    if mask is None:
        low, high = rows.aminmax(dim=1, keepdim=True)
        return low, (high - low) / levels
    knows = mask.expand_as(block).flatten(1) > 0
    low = rows.where(knows, torch.inf).amin(1, keepdim=True)
    high = rows.where(knows, -torch.inf).amax(1, keepdim=True)
    low, high = low.where(low <= high, 0.0), high.where(low <= high, 0.0)
    return low, (high - low) / levels
