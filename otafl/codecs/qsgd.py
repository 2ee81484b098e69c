"""Unbiased stochastic quantisation of magnitudes, in units of each tensor's norm (QSGD).

With xi_i = l/s or (l + 1)/s, such that E xi_i = |v_i| / |v|,

    Q(v_i) = |v| sgn(v_i) xi_i.

The quantiser is unbiased, and E|Q(v) - v|^2 <= min(n/s^2, sqrt(n)/s) |v|^2 with the Euclidean norm
(Lemma 3.1). Bits are counted with a fixed length: a sign and one of s + 1 = 2^(b - 1) levels, and
32 for each norm. The paper's Elias code is shorter if most levels are 0.

References
----------
Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, "QSGD: Communication-Efficient SGD via Gradient
    Quantization and Encoding", section 3.1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec, EncodedGroup, get_trial_device
from otafl.core.contracts import Context, Group, Hyper, Tensors
from otafl.core.rng import Streams, declare_family

ROUNDING = declare_family("qsgd", __name__)


class Qsgd(Codec):
    """Stochastic quantisation in units of a norm."""

    class Settings(Codec.Settings):
        name: Literal["qsgd"] = "qsgd"
        bits: int = Field(4, ge=2, le=16)
        """bits per coordinate: a sign, and s = 2^(bits - 1) - 1 levels above 0"""
        norm: Literal["l2", "max"] = "l2"
        """norm of a tensor or bucket, with 32 bits each: the paper's Euclidean norm (l2), or the
        largest magnitude (max), which its experiments use"""
        bucket: int | None = Field(None, ge=1)
        """coordinates that share a norm; a whole tensor if not given"""

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._levels = 2 ** (settings.bits - 1) - 1
        # the largest magnitude is a level itself, so the quantised values determine their grid
        self.word_bits = settings.bits if settings.norm == "max" else None

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Quantise each tensor of the group stochastically."""
        trial_device = get_trial_device(group, context.cohort)
        blocks = {}
        for name, block in group.masked_tensors.items():
            draw = context.streams.draw_device_uniform(
                ROUNDING / index / name, context.round, *trial_device, tuple(block.shape[1:])
            )
            blocks[name] = self._quantise(block, draw)
        return replace(group, tensors=blocks), memory

    def _quantise(self, block: Tensor, draw: Tensor) -> Tensor:
        """Round a tensor [n, *shape] up or down by uniform numbers [n, *shape]."""
        rows = self._split_buckets(block)
        norm = self._compute_norms(rows)
        share = rows.abs() / norm.where(norm > 0, 1.0)  # exactly 1 at the largest magnitude
        level = share.mul_(self._levels).add_(self._split_buckets(draw)).floor_()
        level.clamp_max_(self._levels)
        return _join_buckets(level.mul_(rows.sign()).mul_(norm / self._levels), block)

    def _compute_norms(self, rows: Tensor) -> Tensor:
        """Compute the norms [n, buckets, 1] of rows [n, buckets, size]."""
        if self.settings.norm == "l2":
            norms = torch.linalg.vector_norm(rows, dim=2, keepdim=True, dtype=torch.float64)
            return norms.to(rows.dtype)
        return torch.linalg.vector_norm(rows, torch.inf, dim=2, keepdim=True)

    def _get_bucket_size(self, num_coordinates: int) -> int:
        """Return the size of a bucket in a tensor with some number of coordinates."""
        return min(self.settings.bucket or num_coordinates, num_coordinates)

    def _split_buckets(self, block: Tensor) -> Tensor:
        """Split a tensor [n, *shape] into buckets [n, buckets, size], padded with zeros."""
        rows = block.flatten(1)
        size = self._get_bucket_size(rows.shape[1])
        return torch.nn.functional.pad(rows, (0, -rows.shape[1] % size)).unflatten(1, (-1, size))

    def count_bits(self, group: Group) -> float:
        sizes = [block[:1].flatten(1).shape[1] for block in group.tensors.values()]
        norms = sum(
            -(-num_coordinates // self._get_bucket_size(num_coordinates))
            for num_coordinates in sizes
        )
        return float(self.settings.bits * group.num_coordinates + 32 * norms)

    def to_words(self, group: Group) -> Tensors:
        """Return sign and level as words s + level, from 0 to 2 s."""
        words = {}
        for name, block in group.tensors.items():
            rows = self._split_buckets(block)
            norm = self._compute_norms(rows)
            level = (rows / norm.where(norm > 0, 1.0) * self._levels).round() + self._levels
            words[name] = _join_buckets(level.to(torch.int64), block)
        return words

    def from_words(self, group: Group, words: Tensors) -> Tensors:
        out = {}
        for name, block in group.tensors.items():
            norm = self._compute_norms(self._split_buckets(block))
            level = self._split_buckets((words[name] - self._levels).to(block.dtype))
            out[name] = _join_buckets(level * (norm / self._levels), block)
        return out


def _join_buckets(rows: Tensor, like: Tensor) -> Tensor:
    """Join buckets [n, buckets, size] to a tensor of the shape of another one."""
    return rows.flatten(1)[:, : like[0].numel()].reshape(like.shape)
