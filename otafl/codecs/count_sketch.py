r"""Count sketches of updates, whose sums are sketches of the sum of the updates.

A row of a sketch has w buckets. Coordinate i is added to bucket h(i) with the sign s(i), which all
devices draw from a shared seed in each round:

.. math::

    S_b = \sum_{i: h(i) = b} s(i) x_i, \quad \hat x_i = s(i) S_{h(i)}                            (1)

With uniform buckets and signs this estimate has no bias, and its variance over the draws is

.. math::

    E (\hat x_i - x_i)^2 = (\| x \|^2 - x_i^2) / w                                               (2)

Sketches are linear, so they superpose over the air: P coordinates take `ratio` P channel uses. With
several rows the estimate is the mean or the median over the rows. There is no error feedback:
eq. (1) is no contraction, and the program of Makkuva et al. leaves error feedback out because it
does not converge. FetchSGD accumulates errors at the server instead, which is not modelled.

References
----------
Charikar, Chen, Farach-Colton 2002, "Finding Frequent Items in Data Streams".
Rothchild et al. 2020, "FetchSGD: Communication-Efficient Federated Learning with Sketching".
Makkuva et al. 2024, "LASER: Linear Compression in Wireless Distributed Optimization".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import (
    Codec,
    EncodedGroup,
    find_late_problems,
    find_vote_problems,
    get_shapes,
    require_all_coordinates,
)
from otafl.core.contracts import Context, Group, Hyper, Tensors
from otafl.core.problems import Problem
from otafl.core.rng import Streams, declare_family
from otafl.models.base import Shapes, flatten, unflatten

BUCKET = declare_family("count_sketch_bucket", __name__)
SIGN = declare_family("count_sketch_sign", __name__)

SKETCH = "sketch"
"""Name of the only tensor of an encoded group."""


class CountSketch(Codec):
    """Count sketch of each device's payload, with buckets and signs that all devices share."""

    state_attrs: ClassVar = ("_hashes", "_shapes")
    sends_sums = True

    class Settings(Codec.Settings):
        small: ClassVar[Mapping[str, Any]] = {"ratio": 0.5}

        name: Literal["count_sketch"] = "count_sketch"
        ratio: float = Field(0.1, gt=0, le=1)
        """buckets of all rows per coordinate"""
        rows: int = Field(1, ge=1)
        """rows of the sketch, each with buckets and signs of its own"""
        estimate: Literal["mean", "median"] = "mean"
        """estimate of a coordinate from its buckets in the rows; the median bounds the effect of a
        few large coordinates"""
        sketch_seed: int = Field(0, ge=0, lt=2**63)
        """seed of buckets and signs, the same in all trials"""

        def find_conflicts(self) -> Iterator[str]:
            if self.estimate == "median" and self.rows < 3:
                yield (
                    f"estimate: median needs 3 rows or more, got rows: {self.rows}; use an odd "
                    "number of rows, or estimate: mean"
                )

        def check(self, scenario: Any) -> Iterable[Problem]:
            return itertools.chain(
                find_late_problems(scenario, self.name, "hash"),
                find_vote_problems(scenario, self.name),
            )

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._own = Streams([settings.sketch_seed], [0], streams.device, streams.dtype)
        self._hashes: dict[int, tuple[Tensor, Tensor]] = {}
        self._shapes: dict[int, Shapes] = {}

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the sketches of the rows, [n, rows * buckets]."""
        require_all_coordinates((group,), "count_sketch", "adds coordinates of all devices up")
        x = flatten(group.tensors)
        self._shapes[index] = get_shapes(group)
        self._hashes[index] = self._draw_hashes(index, x.shape[1], int(context.round))
        bucket, sign = self._hashes[index]
        sketch = x.new_zeros(len(x), self.settings.rows * self._count_buckets(x.shape[1]))
        for place, signs in zip(bucket, sign, strict=True):
            sketch.index_add_(1, place, x * signs)  # eq. (1)
        return replace(group, tensors={SKETCH: sketch}), memory

    def _count_buckets(self, num_coordinates: int) -> int:
        """Count the buckets w of a row."""
        return max(1, round(self.settings.ratio * num_coordinates / self.settings.rows))

    def _draw_hashes(self, index: int, num_coordinates: int, round: int) -> tuple[Tensor, Tensor]:
        """Draw the places of the buckets [rows, P] int64 and the signs [rows, P] of a round.

        The buckets of a row follow those of the row before.
        """
        rows, width = self.settings.rows, self._count_buckets(num_coordinates)
        shape = (rows, num_coordinates)
        draw = self._own.draw_uniform(BUCKET / index, round, shape)[0]
        bucket = (draw * width).long().clamp_max_(width - 1)
        bucket += width * torch.arange(rows, device=draw.device)[:, None]
        coin = self._own.draw_uniform(SIGN / index, round, shape)[0]
        return bucket, torch.where(coin < 0.5, -1.0, 1.0).to(draw.dtype)

    def decode_group(self, index: int, tensors: Tensors) -> Tensors:
        """Return the estimates of the coordinates, eq. (1)."""
        if index not in self._shapes:
            return tensors
        bucket, sign = self._hashes[index]
        sketch = tensors[SKETCH]
        if self.settings.estimate == "median":
            rows = sketch[:, bucket].mul_(sign)
            return unflatten(_compute_median(rows), self._shapes[index])
        total = sketch.new_zeros(len(sketch), bucket.shape[1])
        for place, signs in zip(bucket, sign, strict=True):
            total += sketch[:, place] * signs
        return unflatten(total / len(bucket), self._shapes[index])

    def decode_weight(self, index: int, weight: Tensors, restored: Tensors) -> Tensors:
        """Return the smallest weight of a coordinate's buckets."""
        if index not in self._shapes:
            return weight
        bucket = self._hashes[index][0]
        return unflatten(weight[SKETCH][:, bucket].amin(1), self._shapes[index])


def _compute_median(rows: Tensor) -> Tensor:
    """Return the median [n, P] of rows [n, r, P], for even r the mean of the middle two."""
    ordered, middle = rows.sort(1).values, rows.shape[1] // 2
    if rows.shape[1] % 2:
        return ordered[:, middle]
    return 0.5 * (ordered[:, middle - 1] + ordered[:, middle])
