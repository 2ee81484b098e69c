"""What the parts of a round are."""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from otafl.core.contracts.blocks import Blocks, Hyper
from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.learning import View, Work
from otafl.core.contracts.link import (
    ChannelState,
    Coefficients,
    Limits,
    Link,
    LinkReport,
    Statistics,
)
from otafl.core.contracts.payload import Broadcast, Group, Payload, Received
from otafl.core.rng import Streams


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
    float` says. It and `measures` use names of `otafl.results.variables.VARIABLES`, and leave out what they
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


class PowerPolicy(Protocol):
    """Sets transmit and receive scalars; batched over trials and segments. `constraint` says
    whether |p|^2 m <= budget holds in every round ("peak"), over fading and devices ("average"),
    or not at all ("none": ideal gains). `may_be_silent`: all devices of a trial can be silent in a
    round. `wants_variation`: the link says how much symbols vary over the devices."""

    constraint: Literal["peak", "average", "none"]
    may_be_silent: bool
    wants_variation: bool

    def prepare(self, statistics: Statistics, hyper: Hyper) -> Any:
        """Long-term state: budgets, multipliers."""

    def coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]: ...


class Channel(Protocol):
    """`state` of any round, from 0 to 2^40, is a function of the round alone. `correlation_rounds`:
    rounds after which fading is as good as independent (1: anew in each)."""

    correlation_rounds: int

    def state(self, round: int) -> ChannelState: ...


class Csi(Protocol):
    """variance: [S] of an additive complex normal error independent of h, or None where the error
    is of another kind. pilot_symbols: channel uses of a device's pilots in a coherence block."""

    variance: Tensor | None

    @property
    def pilot_symbols(self) -> int: ...

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        """What devices and server believe h to be. h: [S, K, A, B, F] complex without the
        large-scale gain [S, K]; same shape."""


class Receiver(Protocol):
    """Combines the server's antennas into one before the policy acts. scale "mmse" replaces the
    policy's receive scaling by the one of least mean squared error for its transmit scalars."""

    scale: Literal["policy", "mmse"]

    def combine(self, h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
        """f [S, Q, A] complex of unit norm from the estimate h [S, Q, K, A], large-scale gain
        included, of the devices that send [S, K] within budget [S, K]; the scalar channel is
        f^H h."""
