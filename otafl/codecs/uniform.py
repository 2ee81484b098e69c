"""Uniform quantisation of each tensor of a device between its smallest and largest value.

With beta = min and alpha = max - min, as in FedRLR's baseline 4,

    Q(x) = beta + alpha round((2^b - 1)(x - beta)/alpha)/(2^b - 1).

The two ends are sent as floats in addition to the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec, EncodedGroup
from otafl.core.contracts import Context, Group, Hyper, Tensors
from otafl.core.rng import Streams


class Uniform(Codec):
    """Uniform quantisation between each tensor's extremes."""

    has_single_row = False

    class Settings(Codec.Settings):
        name: Literal["uniform"] = "uniform"
        bits: int = Field(8, ge=1, le=24)
        """bits per coordinate"""

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self.word_bits = settings.bits
        self._levels = 2**settings.bits - 1

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Quantise each tensor of the group."""
        blocks = {
            name: (low + step * level).view_as(block)
            for name, block, low, step, level in self._yield_grids(group)
        }
        return replace(group, tensors=blocks), memory

    def count_bits(self, group: Group) -> float:
        return float(self.settings.bits * group.num_coordinates + 64 * len(group.tensors))

    def to_words(self, group: Group) -> Tensors:
        """Return the level of each coordinate above its tensor's smallest value."""
        return {
            name: level.clamp(0, self._levels).to(torch.int64).view_as(block)
            for name, block, _, _, level in self._yield_grids(group)
        }

    def from_words(self, group: Group, words: Tensors) -> Tensors:
        return {
            name: (low + step * words[name].flatten(1).to(block.dtype)).view_as(block)
            for name, block, low, step, _ in self._yield_grids(group)
        }

    def _yield_grids(self, group: Group) -> Iterator[tuple[str, Tensor, Tensor, Tensor, Tensor]]:
        """Yield the quantisation grid of each tensor.

        It consists of the tensor's name, the tensor [n, *shape], the smallest value and the step of
        each row, [n, 1], over the coordinates that it has, and the level of each coordinate [n, P],
        0 in a constant row.
        """
        masks = group.mask or {}
        for name, block in group.tensors.items():
            rows = block.flatten(1)
            if name not in masks:
                low, high = rows.aminmax(dim=1, keepdim=True)
            else:
                knows = masks[name].expand_as(block).flatten(1) > 0
                low = rows.where(knows, torch.inf).amin(1, keepdim=True)
                high = rows.where(knows, -torch.inf).amax(1, keepdim=True)
                low, high = low.where(low <= high, 0.0), high.where(low <= high, 0.0)
            step = (high - low) / self._levels
            yield name, block, low, step, ((rows - low) / step.where(step > 0, 1.0)).round()
