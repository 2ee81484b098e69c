r"""Count sketches of updates, whose sums are sketches of the sum of the updates.

A sketch has w buckets. Coordinate i is added to bucket h(i) with the sign s(i), which all
devices draw from a shared seed in each round:

.. math::

    S_b = \sum_{i: h(i) = b} s(i) x_i, \quad \hat x_i = s(i) S_{h(i)}                        (1)

With uniform buckets and signs this estimate has no bias, and its variance over the draws is

.. math::

    E (\hat x_i - x_i)^2 = (\| x \|^2 - x_i^2) / w                                           (2)

Sketches are linear, so they superpose over the air: P coordinates take `ratio` P channel uses.
There is no error feedback: eq. (1) is no contraction, and the program of Makkuva et al. leaves
error feedback out because it does not converge. FetchSGD takes several rows of buckets and
accumulates errors at the server instead, which is not modelled.

References
----------
Charikar, Chen, Farach-Colton 2002, "Finding Frequent Items in Data Streams".
Rothchild et al. 2020, "FetchSGD: Communication-Efficient Federated Learning with Sketching".
Makkuva et al. 2024, "LASER: Linear Compression in Wireless Distributed Optimization".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
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
    """Count sketches, of which the sum is a sketch of the sum of the updates."""

    state_attrs: ClassVar = ("_hashes", "_shapes")
    sends_sums = True

    class Settings(Codec.Settings):
        small: ClassVar[Mapping[str, Any]] = {"ratio": 0.5}

        name: Literal["count_sketch"] = "count_sketch"
        ratio: float = Field(0.1, gt=0, le=1)
        """buckets per coordinate"""

        def check(self, scenario: Any) -> Iterable[Problem]:
            return itertools.chain(
                find_late_problems(scenario, self.name, "hash"),
                find_vote_problems(scenario, self.name),
            )

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._own = streams.make_common()
        self._hashes: dict[int, tuple[Tensor, Tensor]] = {}
        self._shapes: dict[int, Shapes] = {}

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the sketches of the rows, [n, buckets]."""
        require_all_coordinates((group,), "count_sketch", "adds coordinates of all devices up")
        x = flatten(group.tensors)
        self._shapes[index] = get_shapes(group)
        self._hashes[index] = self._draw_hashes(index, x.shape[1], int(context.round))
        bucket, sign = self._hashes[index]
        sketch = x.new_zeros(len(x), self._count_buckets(x.shape[1]))
        sketch.index_add_(1, bucket, x * sign)  # eq. (1)
        return replace(group, tensors={SKETCH: sketch}), memory

    def _count_buckets(self, num_coordinates: int) -> int:
        """Count the buckets w."""
        return max(1, round(self.settings.ratio * num_coordinates))

    def _draw_hashes(self, index: int, num_coordinates: int, round: int) -> tuple[Tensor, Tensor]:
        """Draw the buckets [P] int64 and the signs [P] of the coordinates in a round."""
        width = self._count_buckets(num_coordinates)
        draw = self._own.draw_uniform(BUCKET / index, round, (num_coordinates,))[0]
        bucket = (draw * width).long().clamp_max_(width - 1)
        coin = self._own.draw_uniform(SIGN / index, round, (num_coordinates,))[0]
        return bucket, torch.where(coin < 0.5, -1.0, 1.0).to(draw.dtype)

    def decode_group(self, index: int, tensors: Tensors) -> Tensors:
        """Return the estimates of the coordinates, eq. (1)."""
        if index not in self._shapes:
            return tensors
        bucket, sign = self._hashes[index]
        return unflatten(tensors[SKETCH][:, bucket] * sign, self._shapes[index])

    def decode_weight(self, index: int, weight: Tensors, restored: Tensors) -> Tensors:
        """Return the weight of each coordinate's bucket."""
        if index not in self._shapes:
            return weight
        bucket = self._hashes[index][0]
        return unflatten(weight[SKETCH][:, bucket], self._shapes[index])
