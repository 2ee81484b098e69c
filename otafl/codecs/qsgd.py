"""QSGD: unbiased stochastic quantisation.

Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, "QSGD: Communication-Efficient SGD via Gradient
Quantization and Encoding", section 3.1: Q(v_i) = |v| sgn(v_i) xi_i, xi_i = l/s or (l + 1)/s so that
E xi_i = |v_i| / |v|. Unbiased, E|Q(v) - v|^2 <= min(n/s^2, sqrt(n)/s) |v|^2 with the Euclidean norm
(Lemma 3.1). Bits are counted at a fixed length, a sign and one of s + 1 = 2^(b - 1) levels, and 32
for each norm; the paper's Elias code is shorter where most levels are 0.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.codecs.config import QsgdConfig
from otafl.codecs.rows import pairs, require_once, shapes_of
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Payload, Received
from otafl.core.rng import Streams
from otafl.models.base import unflatten


class Qsgd:
    def __init__(self, config: QsgdConfig, hyper: Hyper, streams: Streams) -> None:
        self.config = config
        self._levels = 2 ** (config.bits - 1) - 1
        # the largest magnitude is a level itself, so the quantised values tell their grid
        self.word_bits = config.bits if config.norm == "max" else None

    def init(self, payload: Payload) -> Blocks:
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
        out = []
        for index, group in enumerate(payload):
            if group.route == "uplink":
                require_once(group, "qsgd")
                trial, device = pairs(group, cohort)
                blocks = {}
                for name, block in group.known.items():
                    purpose, shape = f"qsgd/{index}/{name}", tuple(block.shape[1:])
                    draw = streams.device_uniform(purpose, round, trial, device, shape)
                    blocks[name] = self._quantised(block, draw)
                group = replace(group, blocks=blocks)
            out.append(group)
        return tuple(out), memory

    def _quantised(self, block: Tensor, draw: Tensor) -> Tensor:
        rows = self._buckets(block)
        norm = self._norm(rows)
        share = rows.abs() / norm.where(norm > 0, 1.0)  # exactly 1 at the largest magnitude
        level = share.mul_(self._levels).add_(self._buckets(draw)).floor_()
        level.clamp_max_(self._levels)
        return self._block(level.mul_(rows.sign()).mul_(norm / self._levels), block)

    def _norm(self, rows: Tensor) -> Tensor:
        """[n, buckets, 1]."""
        order = 2 if self.config.norm == "l2" else torch.inf
        return torch.linalg.vector_norm(rows, order, dim=2, keepdim=True)

    def _size(self, reals: int) -> int:
        return min(self.config.bucket or reals, reals)

    def _buckets(self, block: Tensor) -> Tensor:
        """A block [n, *shape] as [n, buckets, reals], filled up with zeros."""
        rows = block.flatten(1)
        size = self._size(rows.shape[1])
        return torch.nn.functional.pad(rows, (0, -rows.shape[1] % size)).unflatten(1, (-1, size))

    def _block(self, rows: Tensor, like: Tensor) -> Tensor:
        return rows.flatten(1)[:, : like[0].numel()].reshape(like.shape)

    def decode(self, received: Received) -> Received:
        return received

    def bits(self, group: Group) -> float:
        sizes = [block[:1].flatten(1).shape[1] for block in group.blocks.values()]
        norms = sum(-(-reals // self._size(reals)) for reals in sizes)
        return float(self.config.bits * group.reals + 32 * norms)

    def words(self, group: Group) -> Tensor:
        """[n, P] int64: sign and level as s + level, from 0 to 2 s."""
        columns = []
        for block in group.blocks.values():
            rows = self._buckets(block)
            norm = self._norm(rows)
            level = (rows / norm.where(norm > 0, 1.0) * self._levels).round() + self._levels
            columns.append(self._block(level.to(torch.int64), block).flatten(1))
        return torch.cat(columns, 1)

    def values(self, group: Group, words: Tensor) -> Blocks:
        """The blocks at these words [n, P]."""
        given = unflatten(words - self._levels, shapes_of(group))
        out = {}
        for name, block in group.blocks.items():
            norm = self._norm(self._buckets(block))
            level = self._buckets(given[name].to(block.dtype))
            out[name] = self._block(level * (norm / self._levels), block)
        return out
