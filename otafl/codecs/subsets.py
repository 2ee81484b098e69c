"""Codecs that send some of the coordinates."""

from __future__ import annotations

import math
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
    find_mean_problems,
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
from otafl.core.contracts import Broadcast, Context, Group, Hyper, Received, Tensors
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


NEVER = -1
"""Round in which a coordinate that was never received counts as received."""


def choose_coordinates(
    sizes: Tensor, rounds: Tensor, draw: Tensor, count: int, largest: int, rule: str
) -> Tensor:
    """Choose the coordinates that all devices send, by magnitude and age.

    Parameters
    ----------
    sizes : Tensor, float [S, P]
        Magnitudes of the coordinates when they were last received; infinite if they never were.
    rounds : Tensor, int64 [S, P]
        Rounds in which they were last received; those of the lowest number are the oldest.
    draw : Tensor, float [P]
        Random numbers by which ties are decided.
    count : int
        Number of coordinates to choose, k.
    largest : int
        Number of the largest coordinates: of these the k oldest are chosen (`age_top_k`), or these
        are chosen, and the oldest of the others (`fair_k`).
    rule : {"age_top_k", "fair_k"}
        The rule.

    Returns
    -------
    Tensor, int64 [S, k]
        Coordinates, rising.
    """
    order = draw.argsort()  # stable sorts then keep the order of the draw among equals
    top = sizes[:, order].argsort(dim=1, descending=True, stable=True)[:, :largest]
    is_top = torch.zeros_like(sizes, dtype=torch.bool).scatter_(1, top, True)
    is_candidate = is_top if rule == "age_top_k" else ~is_top
    kept = top[:, :0] if rule == "age_top_k" else top
    last = rounds[:, order].where(is_candidate, torch.iinfo(rounds.dtype).max)
    oldest = last.argsort(dim=1, stable=True)[:, : count - kept.shape[1]]
    return order[torch.cat([kept, oldest], 1)].sort(1).values


class SharedSubset(FeedbackCodec):
    """Subset of the coordinates that all devices share, chosen in each round.

    Over the air the symbols of all devices coincide: a payload of P coordinates takes k =
    round(keep P) channel uses, while codecs topk and random_subset send zeros for the other
    coordinates. Coordinates outside the subset count as 0 in the mean. A device adds them to its
    next update (error feedback) or, without error feedback, drops them.

    By default server and devices draw the subset from a shared seed, so no positions are sent. With
    the other rules the server chooses it from the magnitudes of the last aggregate that contained a
    coordinate, and from its age, the rounds since then. The downlink carries the positions, min(k
    ceil(log2 P), P) bits. AgeTop-k takes the k oldest of the r largest coordinates: for r = k they
    are the largest, and for r = P all take turns. FAIR-k takes the k_m largest, and the oldest of
    the others. Coordinates that the server never received count as the largest and the oldest, and
    ties are decided by the shared seed.

    References
    ----------
    Konecny, McMahan, Yu, Richtarik, Suresh, Bacon 2016, "Federated Learning: Strategies for
        Improving Communication Efficiency", random masks.
    Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory", rand_k.
    Du, Zhu, Li, Yang 2025, "Age-Aware Partial Gradient Update Strategy for Federated Learning Over
        the Air", arXiv 2504.01357: AgeTop-k.
    Zhu, Zhao, Li, Du, Jin, Yang 2025, "Timely Parameter Updating in Over-the-Air Federated
        Learning", arXiv 2512.19103: FAIR-k.
    """

    state_attrs: ClassVar = ("_place", "_shapes", "_sizes", "_rounds", "_round")

    class Settings(FeedbackCodec.Settings):
        small: ClassVar[Mapping[str, Any]] = {"keep": 0.5}

        name: Literal["shared_subset"] = "shared_subset"
        keep: float = Field(0.1, gt=0, le=1)
        """fraction of the coordinates that is sent"""
        rule: Literal["random", "age_top_k", "fair_k"] = "random"
        """choice of the coordinates: at random, or by the server, the oldest of the largest
        (age_top_k), or some of the largest and the oldest of the others (fair_k)"""
        largest: float | None = Field(None, gt=0, le=1)
        """for age_top_k, fraction r / P of the coordinates among which age decides, at least
        `keep`; for fair_k, fraction k_m / k of the sent coordinates that are the largest. By
        default half of what is possible: (1 + keep) / 2, or 0.5"""

        @property
        def assumes_increments(self) -> str:
            return LEFT_OUT

        def count_largest(self, num_coordinates: int) -> int:
            """Count the coordinates r or k_m."""
            count = count_kept(self.keep, num_coordinates)
            if self.rule == "fair_k":
                return round(count * (0.5 if self.largest is None else self.largest))
            share = 0.5 * (1.0 + self.keep) if self.largest is None else self.largest
            return max(count, round(share * num_coordinates))

        def find_conflicts(self) -> Iterator[str]:
            if self.largest is None:
                return
            if self.rule == "random":
                yield (
                    "largest has no effect with rule: random; leave it out, or use rule: age_top_k "
                    "or fair_k"
                )
            if self.rule == "age_top_k" and self.largest < self.keep:
                yield (
                    f"largest: got {self.largest:g}; must be at least keep, which is {self.keep:g}"
                )

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from find_late_problems(scenario, self.name, "subset")
            if self.rule != "random":
                yield from find_mean_problems(scenario, self.name)

    def __init__(self, settings: Settings, hyper: Hyper, streams: Streams) -> None:
        super().__init__(settings, hyper, streams)
        self._own = streams.make_common()
        self._place: dict[int, Tensor] = {}
        self._shapes: dict[int, Shapes] = {}
        self._sizes: dict[int, Tensor] = {}
        self._rounds: dict[int, Tensor] = {}
        self._round = 0

    def extend_broadcast(self, broadcast: Broadcast, round: int) -> Broadcast:
        """Add the positions that the server has chosen; the first are drawn from the seed."""
        counts = [(size.shape[1], self._place[i].shape[1]) for i, size in self._sizes.items()]
        bits = sum(count_position_bits(num_coordinates, k) for num_coordinates, k in counts)
        return replace(broadcast, side_coordinates=math.ceil(bits / 32))

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the round's subset of the coordinates, [n, k]."""
        require_all_coordinates(
            (group,), "shared_subset", "sends the same coordinates of all devices"
        )
        a, memory = self.add_memory(flatten(group.tensors), None, group, index, memory)
        self._shapes[index], self._round = get_shapes(group), int(context.round)
        self._place[index] = self._choose(index, group.num_coordinates, context)
        trial = get_trial_device(group, context.cohort)[0]
        return replace(group, tensors={SENT: a.gather(1, self._place[index][trial])}), memory

    def _choose(self, index: int, num_coordinates: int, context: Context) -> Tensor:
        """Choose the coordinates of a group in a round, [S, k] int64, rising."""
        settings, trials = self.settings, context.cohort.num_trials
        draw = self._own.draw_uniform(SHARED_CHOICE / index, context.round, (num_coordinates,))[0]
        count = count_kept(settings.keep, num_coordinates)
        if settings.rule == "random":
            return draw.topk(count).indices.sort().values.expand(trials, -1)
        if index not in self._sizes:
            self._sizes[index] = draw.new_full((trials, num_coordinates), math.inf)
            self._rounds[index] = torch.full_like(self._sizes[index], NEVER, dtype=torch.int64)
        largest = settings.count_largest(num_coordinates)
        state = self._sizes[index], self._rounds[index]
        return choose_coordinates(*state, draw, count, largest, settings.rule)

    def find_received(
        self, group: Group, index: int, delivered: Tensor, a: Tensor, context: Context
    ) -> Tensor:
        sent = torch.where(delivered, flatten(group.tensors), 0.0)
        trial = get_trial_device(group, context.cohort)[0]
        return self._scatter(index, sent, self._place[index][trial])

    def decode(self, received: Received) -> Received:
        """Decode what the server has received, and note magnitudes and ages of the subset."""
        if self.settings.rule != "random":
            received = replace(received, per_device=None)  # the next subset follows from the mean
        for index, size in self._sizes.items():
            mean, place = received.mean[index][SENT], self._place[index]
            has, reached = mean.isfinite(), received.coordinate_weight
            weight = None if reached is None else reached[index]
            if weight is not None:
                has = has & (weight[SENT] > 0)
            if received.any_delivered is not None:
                has = has & received.any_delivered[:, None]
            rounds = self._rounds[index]
            fresh = mean.abs().where(has, size.gather(1, place))
            self._sizes[index] = size.scatter(1, place, fresh)
            self._rounds[index] = rounds.scatter(
                1, place, torch.where(has, self._round, rounds.gather(1, place))
            )
        return super().decode(received)

    def decode_group(self, index: int, tensors: Tensors) -> Tensors:
        if index not in self._shapes:
            return tensors
        sent, place = tensors[SENT], self._place[index]
        place = place if len(place) == len(sent) else place[:1].expand(len(sent), -1)
        return unflatten(self._scatter(index, sent, place), self._shapes[index])

    def decode_weight(self, index: int, weight: Tensors, restored: Tensors) -> Tensors:
        """Return the weight of the subset's coordinates, and 0 for the others."""
        return self.decode_group(index, weight)

    def _scatter(self, index: int, sent: Tensor, place: Tensor) -> Tensor:
        """Put the numbers of subsets [n, k] at their coordinates [n, P], with zeros elsewhere."""
        num_coordinates = sum(math.prod(shape) for shape in self._shapes[index].values())
        return sent.new_zeros(len(sent), num_coordinates).scatter_(1, place, sent)


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
