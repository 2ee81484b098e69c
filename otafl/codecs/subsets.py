"""Codecs that send some of the coordinates, or sums of them."""

from __future__ import annotations

import itertools
import math
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
    flatten_known,
    get_shapes,
    get_trial_device,
    require_all_coordinates,
)
from otafl.codecs.sparse import (
    LEFT_OUT,
    FeedbackCodec,
    PositionCode,
    count_kept,
    count_position_bits,
    count_subset_bits,
    draw_random_subset,
)
from otafl.core.contracts import Context, Group, Hyper, Tensors
from otafl.core.problems import Problem
from otafl.core.rng import Streams, declare_family
from otafl.factorised.shrinkage import keep_largest
from otafl.models.base import Shapes, flatten, unflatten

CHOICE = declare_family("random_subset", __name__)


class RandomSubset(Codec):
    """Random subset of a device's payload, drawn for each device and round.

    FedAvg with this codec is TDPFed's reference "FedAvg (s.a.r.)", which sends a fraction of the
    parameters in both directions: this codec on the uplink, and downlink random_subset on the
    downlink. On a digital uplink a coordinate has 32 bits, and positions are sent as by codec topk.
    Over the air the zeros are sent too.

    References
    ----------
    Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated
        Learning", section VII-C.
    """

    class Settings(Codec.Settings):
        name: Literal["random_subset"] = "random_subset"
        keep: float = Field(0.5, gt=0, le=1)
        """fraction of the coordinates that is sent"""
        fill: Literal["zero", "keep"] = "zero"
        """treatment of coordinates that are not sent: zero, they count as 0 in the mean; keep, each
        coordinate's mean is over the devices that sent it, 0 if none did (so that with
        increments the server keeps its current value)"""

        @property
        def assumes_increments(self) -> str:
            return LEFT_OUT if self.fill == "zero" else ""

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the group with zeros, or a mask, outside the random subset."""
        draw = context.streams.draw_device_uniform(
            CHOICE / index,
            context.round,
            *get_trial_device(group, context.cohort),
            (group.num_coordinates,),
        )
        some = draw_random_subset(draw, count_kept(self.settings.keep, group.num_coordinates))
        x, known = flatten_known(group)
        shapes = get_shapes(group)
        blocks = unflatten(x * some, shapes)
        if self.settings.fill == "zero":
            return replace(group, tensors=blocks), memory
        mask = some if known is None else some * known
        return replace(group, tensors=blocks, mask=unflatten(mask, shapes)), memory

    def count_bits(self, group: Group) -> float:
        count = count_kept(self.settings.keep, group.num_coordinates)
        return float(count_subset_bits(group.num_coordinates, count))


SHARED_CHOICE = declare_family("shared_subset", __name__)

SENT = "sent"
"""Name of the only tensor of an encoded group."""


class SharedSubset(FeedbackCodec):
    """Random subset of the payload that all devices share, drawn in each round.

    Server and devices draw it from a shared seed, so no positions are sent. Over the air the
    symbols of all devices coincide: a payload of P coordinates takes round(keep P) channel uses,
    while codecs topk and random_subset send zeros for the other coordinates. Coordinates outside
    the subset count as 0 in the mean. A device adds them to its next update (error feedback) or,
    without error feedback, drops them.

    References
    ----------
    Konecny, McMahan, Yu, Richtarik, Suresh, Bacon 2016, "Federated Learning: Strategies for
        Improving Communication Efficiency", random masks.
    Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory", rand_k.
    """

    state_attrs: ClassVar = ("_place", "_shapes")

    class Settings(FeedbackCodec.Settings):
        small: ClassVar[Mapping[str, Any]] = {"keep": 0.5}

        name: Literal["shared_subset"] = "shared_subset"
        keep: float = Field(0.1, gt=0, le=1)
        """fraction of the coordinates that is sent"""

        @property
        def assumes_increments(self) -> str:
            return LEFT_OUT

        def check(self, scenario: Any) -> Iterable[Problem]:
            return find_late_problems(scenario, "shared_subset", "subset")

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._own = Streams([0], [0], streams.device, streams.dtype)  # the same in all trials
        self._place: dict[int, Tensor] = {}
        self._shapes: dict[int, Shapes] = {}

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the round's subset of the coordinates, [n, k]."""
        require_all_coordinates(
            (group,), "shared_subset", "sends the same coordinates of all devices"
        )
        a, memory = self.add_memory(flatten(group.tensors), None, group, index, memory)
        draw = self._own.draw_uniform(
            SHARED_CHOICE / index, context.round, (group.num_coordinates,)
        )[0]
        place = (
            draw.topk(count_kept(self.settings.keep, group.num_coordinates)).indices.sort().values
        )
        self._place[index], self._shapes[index] = place, get_shapes(group)
        return replace(group, tensors={SENT: a[:, place]}), memory

    def find_received(
        self, group: Group, index: int, delivered: Tensor, a: Tensor, context: Context
    ) -> Tensor:
        return self._scatter(index, torch.where(delivered, flatten(group.tensors), 0.0))

    def decode_group(self, index: int, tensors: Tensors) -> Tensors:
        if index not in self._shapes:
            return tensors
        return unflatten(self._scatter(index, tensors[SENT]), self._shapes[index])

    def decode_weight(self, index: int, weight: Tensors, restored: Tensors) -> Tensors:
        """Return the weight of the subset's coordinates, and 0 for the others."""
        return self.decode_group(index, weight)

    def _scatter(self, index: int, sent: Tensor) -> Tensor:
        """Put the numbers of a subset [n, k] at their coordinates [n, P], with zeros elsewhere."""
        num_coordinates = sum(math.prod(shape) for shape in self._shapes[index].values())
        return sent.new_zeros(len(sent), num_coordinates).index_copy_(1, self._place[index], sent)


RANGE_BITS = 64
"""Bits of the smallest and the largest kept magnitude, as floats."""


class TopK(FeedbackCodec):
    """Largest magnitudes of a device's payload, with a memory of the rest (error feedback).

    On a digital uplink k of n coordinates take

        k b + r + min(k ceil(log2 n), n)   or   k b + r + ceil(log2 C(n, k))                     (1)

    bits, by `position_code`. By default b = 32 and r = 0. With `value_bits`, b bits are a sign and
    the nearest of 2^(b-1) equidistant magnitudes between the smallest and the largest that are
    kept, and these two take r = 64 bits. Error feedback also remembers the rounding error. Over the
    air the zeros are sent too.

    References
    ----------
    Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory".
    Aji, Heafield 2017, "Sparse Communication for Distributed Gradient Descent".
    Cover 1973, "Enumerative Source Encoding", section III.
    """

    class Settings(FeedbackCodec.Settings):
        name: Literal["topk"] = "topk"
        keep: float = Field(0.1, gt=0, le=1)
        """fraction of the coordinates that is kept"""
        position_code: PositionCode = "plain"
        value_bits: int | None = Field(None, ge=2, le=16)
        """bits of a kept coordinate, a sign and a rounded magnitude; by default a float of 32 bits
        that is not rounded"""

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the group with zeros except for the largest magnitudes of a = x + e."""
        x, mask = flatten_known(group)
        a, memory = self.add_memory(x, mask, group, index, memory)
        sent = keep_largest(a, count_kept(self.settings.keep, a.shape[1]))
        if self.settings.value_bits is not None:
            sent = round_magnitudes(sent, self.settings.value_bits)
        return replace(group, tensors=unflatten(sent, get_shapes(group))), memory

    def find_received(
        self, group: Group, index: int, delivered: Tensor, a: Tensor, context: Context
    ) -> Tensor:
        return torch.where(delivered, flatten(group.tensors), 0.0)

    def count_bits(self, group: Group) -> float:
        """Count the bits of the largest coordinates, eq. (1)."""
        kept = count_kept(self.settings.keep, group.num_coordinates)
        where = count_position_bits(group.num_coordinates, kept, self.settings.position_code)
        if self.settings.value_bits is None:
            return float(32 * kept + where)
        return float(self.settings.value_bits * kept + RANGE_BITS + where)


def round_magnitudes(rows: Tensor, bits: int) -> Tensor:
    """Round the non-zero magnitudes of each row to equidistant levels.

    Parameters
    ----------
    rows : Tensor, float [n, P]
        Numbers, 0 if not sent.
    bits : int
        Bits b of a number, of which one is its sign.

    Returns
    -------
    Tensor, float [n, P]
        Numbers with the nearest of 2^(b-1) magnitudes from the smallest to the largest of a row.
    """
    size, nonzero = rows.abs(), rows != 0
    high = size.amax(1, keepdim=True)
    low = torch.minimum(size.where(nonzero, torch.inf).amin(1, keepdim=True), high)
    step = (high - low) / (2 ** (bits - 1) - 1)
    level = ((size - low) / step.where(step > 0, 1.0)).round()
    return (rows.sign() * (low + step * level)).where(nonzero, 0.0)


BUCKET = declare_family("count_sketch_bucket", __name__)
SIGN = declare_family("count_sketch_sign", __name__)

SKETCH = "sketch"
"""Name of the only tensor of an encoded group."""


class CountSketch(Codec):
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
        self._own = Streams([0], [0], streams.device, streams.dtype)  # the same in all trials
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
