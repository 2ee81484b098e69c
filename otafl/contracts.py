"""What the parts of a round hand to each other: frozen dataclasses of tensors.

Sizes: S trials of one stack, K devices in the population, N (trial, device) pairs that take part
in a round, n rows of one payload group.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from otafl.link_contracts import ChannelState, Limits, LinkReport
    from otafl.rng import Streams

Blocks = dict[str, Tensor]
Hyper = Mapping[str, Tensor]
"""Field name -> [S]: the numeric fields of a component over which trials of one stack may
differ."""


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round. Rows are ordered by trial, then by device.

    trial, device, staleness, version, level: [N] int64. weight: [N] float, the device's share of
    all samples of the trial, whoever takes part; a receiver normalises it over the rows that it
    sums. sends: [N] bool, False for a device that trains but is not aggregated. counts: rows of
    each of the S trials, known on the host. population: K. all_send: the host knows that every
    row sends.
    """

    trial: Tensor
    device: Tensor
    weight: Tensor
    staleness: Tensor
    version: Tensor
    level: Tensor
    sends: Tensor
    counts: tuple[int, ...]
    population: int
    all_send: bool = True

    @staticmethod
    def fresh(
        trial: Tensor,
        device: Tensor,
        weight: Tensor,
        counts: tuple[int, ...],
        population: int,
        version: int = 0,
    ) -> Cohort:
        """Rows that all send, and whose model is of this version."""
        zeros = torch.zeros_like(trial)
        return Cohort(
            trial=trial,
            device=device,
            weight=weight,
            staleness=zeros,
            version=torch.full_like(zeros, version),
            level=zeros,
            sends=torch.ones_like(zeros, dtype=torch.bool),
            counts=counts,
            population=population,
        )

    @property
    def size(self) -> int:
        """N."""
        return self.trial.shape[0]

    @property
    def trials(self) -> int:
        """S."""
        return len(self.counts)

    @functools.cached_property
    def cell(self) -> Tensor:
        """[N] int64: row of the pair in a [S * K, ...] table."""
        return self.trial * self.population + self.device

    @functools.cached_property
    def participants(self) -> list[np.ndarray]:
        """The devices of each trial, on the host."""
        return np.split(self.device.cpu().numpy(), np.cumsum(self.counts)[:-1])

    @functools.cached_property
    def rows_of(self) -> Tensor:
        """[S] float: rows of each trial, as `counts`."""
        return self.weight.new_tensor(self.counts)

    @functools.cached_property
    def unit_weight(self) -> Tensor:
        """[N]: the weights, summing to one over the rows of a trial."""
        total = self.weight.new_zeros(self.trials).index_add_(0, self.trial, self.weight)
        return self.weight / total[self.trial]

    def rows(self, start: int, stop: int) -> Cohort:
        """The rows start..stop as a cohort of their own (a chunk)."""
        counts, first = [], 0
        for count in self.counts:
            counts.append(max(0, min(stop, first + count) - max(start, first)))
            first += count
        part: dict[str, Any] = {name: getattr(self, name)[start:stop] for name in _COHORT_TENSORS}
        return replace(self, counts=tuple(counts), **part)

    def take(self, rows: Tensor) -> Cohort:
        """The named rows [n] int64, ordered by trial, as a cohort of their own."""
        part = {name: getattr(self, name)[rows] for name in _COHORT_TENSORS}
        return replace(self, counts=rows_per_trial(part["trial"], self.trials), **part)

    @property
    def senders(self) -> Cohort:
        """The rows that send, as a cohort of their own."""
        if self.all_send:
            return self
        return replace(self.take(self.sends.nonzero().squeeze(1)), all_send=True)

    @staticmethod
    def join(first: Cohort, second: Cohort) -> tuple[Cohort, Tensor]:
        """Both cohorts as one, and the order [N1 + N2] that sorts their stacked rows by trial."""
        both = {n: torch.cat([getattr(first, n), getattr(second, n)]) for n in _COHORT_TENSORS}
        order = torch.argsort(both["trial"] * first.population + both["device"], stable=True)
        part: dict[str, Any] = {name: value[order] for name, value in both.items()}
        counts = tuple(a + b for a, b in zip(first.counts, second.counts, strict=True))
        all_send = first.all_send and second.all_send
        return replace(first, counts=counts, all_send=all_send, **part), order


_COHORT_TENSORS = ("trial", "device", "weight", "staleness", "version", "level", "sends")


def rows_per_trial(trial: Tensor, trials: int) -> tuple[int, ...]:
    """How many rows [n] each of the trials has."""
    return tuple(torch.bincount(trial, minlength=trials).tolist())


def taken(block: Tensor, rows: Tensor) -> Tensor:
    """The rows [n] int64 of a block [.., *shape], where the rows' device is: a block may lie
    elsewhere, on the host or on disk."""
    return block.index_select(0, rows.to(block.device)).to(rows.device)


@dataclass(frozen=True)
class Broadcast:
    """What the server sends down: named blocks [S, *shape] shared by the devices of a trial, or
    [N, *shape] in the cohort's order where each device gets its own (`per_device`). reals_of: [N]
    int64, the real numbers that a copy for each row of the cohort has, where it takes a part of the
    blocks only."""

    blocks: Blocks
    per_device: bool = False
    reals_of: Tensor | None = None

    def rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """Blocks [n, *shape] for the rows start..stop of the cohort, always a fresh copy."""
        if self.per_device:
            blocks = {name: block[start:stop].clone() for name, block in self.blocks.items()}
        else:
            trial = cohort.trial[start:stop]
            blocks = {name: block.index_select(0, trial) for name, block in self.blocks.items()}
        return Broadcast(blocks, per_device=True)

    @property
    def reals(self) -> int:
        """Real numbers in one copy."""
        return sum(math.prod(block.shape[1:]) for block in self.blocks.values())


Weighting = Literal["mean", "none"]


@dataclass(frozen=True)
class Group:
    """Rows of a payload that have the same shapes.

    blocks: name -> [n, *shape]. rows: [n] int64 into the cohort, ordered by trial; a row may occur
    more than once and in several groups; None means every cohort row once, in order.
    mask: name -> [n, *shape] or broadcastable, 0 where a row does not know a coordinate.
    share: [n] the part of its reals that a row has by a mask that the server knows beforehand;
    nobody pays for the others on a digital uplink. None for all.
    weighting: "mean" asks the receiver for the mean under the cohort's weights; "none" asks for
    the plain sum, for an algorithm that applies the cohort's weights to its blocks itself (a
    product of two weighted sums would square the weight). route: "uplink", or "ideal" for blocks
    that are carried free of error, with the reason in `reason`.
    """

    blocks: Blocks
    rows: Tensor | None = None
    mask: Blocks | None = None
    share: Tensor | None = None
    weighting: Weighting = "mean"
    route: Literal["uplink", "ideal"] = "uplink"
    reason: str = ""

    def __post_init__(self) -> None:
        if self.route == "ideal" and not self.reason:
            raise ValueError("a payload group on the ideal route must state its reason")

    @property
    def reals(self) -> int:
        """Real numbers in one row."""
        return sum(math.prod(block.shape[1:]) for block in self.blocks.values())

    @property
    def full_mask(self) -> Blocks | None:
        """A mask for every block and in its shape, ones where none is given; None without any."""
        if self.mask is None:
            return None
        return {
            name: self.mask[name].expand_as(block) if name in self.mask else torch.ones_like(block)
            for name, block in self.blocks.items()
        }

    @property
    def known(self) -> Blocks:
        """The blocks, 0 where a row does not know a coordinate."""
        mask = self.full_mask
        if mask is None:
            return self.blocks
        return {name: block * mask[name] for name, block in self.blocks.items()}

    def with_share(self) -> Group:
        """The group with the share that its mask leaves of each row."""
        mask = self.full_mask
        if mask is None:
            return self
        known = torch.stack([block.flatten(1).sum(1) for block in mask.values()]).sum(0)
        return replace(self, share=known / self.reals)

    def select(self, keep: Tensor, renumber: Tensor) -> Group:
        """The part of the group whose cohort rows are kept: keep [N] bool, renumber [N] int64."""
        rows = self.rows if self.rows is not None else torch.arange(len(keep), device=keep.device)
        inside = keep[rows].nonzero().squeeze(1)
        mask = self.full_mask
        return replace(
            self,
            rows=renumber[rows[inside]],
            blocks={name: block[inside] for name, block in self.blocks.items()},
            mask=None if mask is None else {name: m[inside] for name, m in mask.items()},
            share=None if self.share is None else self.share[inside],
        )


Payload = tuple[Group, ...]


@dataclass(frozen=True)
class Received:
    """What the receiver hands to the algorithm, one entry for each payload group.

    mean: blocks [S, *shape]: the (masked) weighted mean, or the sum for weighting "none".
    count: weight that arrived: [S], or name -> [S, *shape] for a masked group (0: keep the old).
        Out of 1 for a mean; for weighting "none" the sum of the cohort's weights, as they are.
    each: blocks [n, *shape] where the transport tells devices apart, else None.
    came: [n] bool, which of the rows of `each` arrived (the others are 0); None where all did.
    alive: [S] bool, False where nothing came and the round is a no-op; None means all alive.
    """

    mean: tuple[Blocks, ...]
    count: tuple[Tensor | Blocks, ...]
    each: tuple[Blocks, ...] | None
    alive: Tensor | None
    came: tuple[Tensor | None, ...] | None = None


class Codec(Protocol):
    """Compresses what is sent; made as `implementation(config, hyper, streams)`, hyper being its
    own stackable fields [S]. Groups on the ideal route pass as they are.

    memory: name -> [N, ...] per-device state (error feedback), held by the engine between rounds;
    zero at first. decode undoes what encode did to the shapes of the payload that it saw last;
    groups and shapes are the same in all rounds. bits: what one row of an encoded group takes on a
    digital uplink.
    """

    def init(self, payload: Payload) -> Blocks: ...
    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]: ...
    def decode(self, received: Received) -> Received: ...
    def bits(self, group: Group) -> float: ...


@runtime_checkable
class WordCodec(Protocol):
    """A codec whose encoded reals are words of so many bits, for an uplink that sends real bits.
    word_bits: bits of a word; None where the codec's settings make no words.

    words: [n, P] int64 from 0 to 2^word_bits - 1, the blocks side by side. values: the blocks of
    the group with other words in the place of its own; what travels beside the words (the ends of
    a quantiser's range) is the group's.
    """

    word_bits: int | None

    def words(self, group: Group) -> Tensor: ...
    def values(self, group: Group, words: Tensor) -> Blocks: ...


class Transport(Protocol):
    gives: frozenset[str]
    """"mean", and "each" where devices are told apart."""

    def deliver(
        self,
        payload: Payload,
        cohort: Cohort,
        channel: ChannelState,
        round: int,
        limits: Limits = ...,
    ) -> tuple[Received, LinkReport]: ...


Predict = Callable[[Blocks, Tensor], Tensor]
Moments = Callable[[Blocks, Tensor], Blocks]


@dataclass(frozen=True)
class FineTune:
    """SGD steps that a device takes before its model is tested, on minibatches of its own training
    samples, and then forgets. rate: [S] step size."""

    steps: int
    rate: Tensor


@dataclass(frozen=True)
class View:
    """A model to be evaluated. params: name -> [S, *shape] (owner "trial") or [S * K, *shape]
    (owner "device"). predict(params [n, ...], x [n or 1, B, *input]) -> scores [n, B, classes],
    differentiable by the parameters where the model is fine-tuned. fine_tune: each device tests
    its own fine-tuned copy. moments(params, x) -> blocks [n, *shape]: statistics of batch
    normalisations on a batch of training samples; their means over batches are added to the
    parameters that `predict` is given, which without them uses the statistics of what it sees."""

    params: Blocks
    predict: Predict
    owner: Literal["trial", "device"] = "trial"
    fine_tune: FineTune | None = None
    moments: Moments | None = None


@dataclass(frozen=True)
class Batch:
    """x: [n, B, *input], y: [n, B] int64, weight: [n, B] summing to one in a row, or None for
    equal weights."""

    x: Tensor
    y: Tensor
    weight: Tensor | None


class Work(Protocol):
    """The local data of a chunk of cohort rows in one round."""

    round: int
    steps: int
    cohort: Cohort

    def batch(self, step: int, draw: int = 0) -> Batch:
        """Minibatch of a local step; `draw` tells several independent ones of a step apart."""

    def full(self) -> Batch:
        """All local data, padded to the longest row with weight 0."""

    def class_counts(self) -> Tensor:
        """[n, classes] samples of each class."""

    def take(self, rows: Tensor) -> Work:
        """The local data of the named rows [n] int64, ordered by trial."""


@dataclass(frozen=True)
class Level:
    """A size that a method has models of. ratio: of its width or rank to the whole's. parameters;
    macs: multiplications of a forward pass of one sample; flops(samples): of a device's local
    work; kept_reals: numbers that a sample leaves behind for the backward pass."""

    ratio: float
    parameters: int
    macs: int
    flops: Callable[[int], float]
    kept_reals: int = 0


class ServerOptimiser(Protocol):
    """Changes the step of a method's server; made as `implementation(config, hyper)`. Of methods
    alone whose server block "model" [S, P] moves by averaged increments (`averages` of their
    settings)."""

    def init(self, server: Blocks) -> Blocks:
        """The optimiser's memory, [S, *shape], at the server's start."""

    def step(self, old: Blocks, new: Blocks, memory: Blocks) -> tuple[Blocks, Blocks]:
        """The server's blocks, from those before and after the method's own step; and the
        memory."""


class Algorithm(Protocol):
    """A federated method. Tensors it is given belong to it; what it returns must not alias what
    the engine keeps (state of the server, of the devices, other rows).

    A method some of whose devices train without being aggregated has `sends(cohort, round, streams)
    -> [N] bool` besides; the engine asks it when the cohort is chosen. One that can say more of a
    trained state than its views show has `measures(server, devices) -> name -> [S]` of the blocks
    [S, *shape] and [S, K, *shape]; the recorder asks it at every evaluation after the first round.
    One that has models of several sizes has `levels() -> tuple of Level`, the largest first; rows
    of a cohort then carry one of them in `level`, and views "level0", "level1".. are the models of
    each. One whose server does not step in every slot has `version(server) -> [S]` int64, its steps
    so far, which versions and staleness of a cohort then count, else slots. One whose devices count
    by other numbers than their samples has `row_weights(cohort) -> [N]`, which the engine puts into
    the cohort. What holds for all trials and rounds of a method's settings, `constants() -> name ->
    float` says. It and `measures` use names of `otafl.variables.VARIABLES`, and leave out what they
    do not know.
    """

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        """Server blocks [S, *shape] and device blocks [S, K, *shape]."""

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast: ...

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        """Local work of a chunk of n rows: device blocks [n, *shape], payload, loss [n]."""

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks: ...

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]: ...

    def flops(self, samples: int) -> float:
        """Floating-point operations of a device's local work on so many samples."""
