"""Contract of a codec, which compresses a payload between the method and the transport."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.algorithms.custom import get_class
from otafl.core import contracts as c
from otafl.core import registry, settings
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.stateful import Stateful
from otafl.models.base import Shapes, flatten

EncodedGroup = tuple[c.Group, c.Tensors]
"""Encoded group, and the memory if the server receives nothing of it."""


class Codec(Stateful, ABC):
    """Compression of what devices send; groups on the ideal route are not changed.

    `decode` restores the shapes of the payload that `encode` saw last. Groups and shapes are the
    same in all rounds. `otafl list NAME` prints an example scenario of each built-in codec.

    Parameters
    ----------
    settings : Settings
        Settings of the codec.
    hyper : Hyper
        Stackable fields, [S] each.
    streams : Streams
        Precision, torch device and number of trials.

    Attributes
    ----------
    model_shapes : dict of str to tuple of int
        Shapes of the parameters that a method sends side by side in one tensor [n, P], in order.
        The engine sets them. They are empty for updates of an own loop, which have shapes.
    """

    is_lossless: ClassVar[bool] = False
    """Whether decoding gives the payload itself."""

    sends_sums: ClassVar[bool] = False
    """Whether, with default settings, the server needs the plain sum of the signals.

    A vote does not give this sum.
    """

    word_bits: int | None = None
    """Bits of a word that an uplink can send bit by bit; None if there are no words."""

    class Settings(settings.Settings):
        """Section `codec` of a scenario."""

    def __init__(self, settings: Any, hyper: c.Hyper, streams: Streams) -> None:
        self.settings, self.hyper = settings, hyper
        self.model_shapes: Shapes = {}

    @property
    def has_memory(self) -> bool:
        """Whether devices keep what the server has not received, and add it to a later update.

        This is error feedback, by which no coded value is lost for good.
        """
        return False

    def init(self, payload: c.Payload) -> c.Tensors:
        """Return the devices' memory before the first round, name -> zeros [N, ...].

        The engine keeps it between rounds.
        """
        return {}

    def extend_broadcast(self, broadcast: c.Broadcast, round: int) -> c.Broadcast:
        """Add the number of coordinates that devices need of the server to encode in a round.

        By default they need none.

        Parameters
        ----------
        broadcast : Broadcast
            Broadcast of the algorithm.
        round : int
            The round, from 0.

        Returns
        -------
        Broadcast
            The broadcast, with `side_coordinates`.
        """
        return broadcast

    def encode(
        self, payload: c.Payload, memory: c.Tensors, cohort: c.Cohort, round: int, streams: Streams
    ) -> tuple[c.Payload, c.Tensors]:
        """Encode the uplink groups of a payload.

        Parameters
        ----------
        payload : Payload
            Groups of the N rows of the cohort.
        memory : Tensors [N, ...]
            Memory of these rows.
        cohort : Cohort
            The N rows.
        round : int
            The round, from 0.
        streams : Streams
            Source of random numbers.

        Returns
        -------
        payload : Payload
            The payload with encoded uplink groups.
        memory : Tensors [N, ...]
            Memory if the server receives nothing of it.
        """
        context = c.Context(cohort, self.hyper, streams, round)
        coded = []
        for index, group in enumerate(payload):
            if group.route == "uplink":
                group, memory = self.encode_group(group, index, memory, context)
            coded.append(group)
        return tuple(coded), memory

    @abstractmethod
    def encode_group(
        self, group: c.Group, index: int, memory: c.Tensors, context: c.Context
    ) -> EncodedGroup:
        """Encode one uplink group.

        Parameters
        ----------
        group : Group
            Rows [n, *shape] of the group.
        index : int
            Position of the group in the payload.
        memory : Tensors [N, ...]
            Memory of the rows.
        context : Context
            Cohort, stackable fields, random streams and round.

        Returns
        -------
        group : Group
            The encoded group.
        memory : Tensors [N, ...]
            Memory if the server receives nothing of it.
        """

    def on_ack(
        self,
        memory: c.Tensors,
        payload: c.Payload,
        delivered_masks: c.DeliveredMasks,
        context: c.Context,
    ) -> c.Tensors:
        """Update the memory by what the server has received.

        It is called once for every update of a codec with `has_memory`: after the update's slot, or
        as soon as it has missed all slots.

        Parameters
        ----------
        memory : Tensors [N, ...]
            Memory of the N rows that sent, as `encode` returned it.
        payload : Payload
            Encoded payload.
        delivered_masks : DeliveredMasks
            Delivered coordinates.
        context : Context
            The rows, and the round of the slot.

        Returns
        -------
        Tensors [N, ...]
            New memory.
        """
        return memory

    def decode(self, received: c.Received) -> c.Received:
        """Decode every group of what the server has received.

        It decodes the mean, each device's update if the server has them, and the delivered weight.

        Parameters
        ----------
        received : Received
            Encoded groups.

        Returns
        -------
        Received
            Decoded groups.
        """

        def decode_all(groups: tuple[c.Tensors, ...]) -> tuple[c.Tensors, ...]:
            return tuple(self.decode_group(index, blocks) for index, blocks in enumerate(groups))

        each = None if received.per_device is None else decode_all(received.per_device)
        mean, reached = decode_all(received.mean), received.coordinate_weight
        if reached is not None:
            pairs = enumerate(zip(reached, mean, strict=True))
            reached = tuple(
                None if weight is None else self.decode_weight(index, weight, blocks)
                for index, (weight, blocks) in pairs
            )
        return replace(received, mean=mean, per_device=each, coordinate_weight=reached)

    def decode_group(self, index: int, tensors: c.Tensors) -> c.Tensors:
        """Return the tensors of group `index` as before `encode_group`.

        Tensors of the ideal route are returned as they are.
        """
        return tensors

    def decode_weight(self, index: int, weight: c.Tensors, restored: c.Tensors) -> c.Tensors:
        """Compute the delivered weight of each coordinate of a decoded group.

        If a tensor kept its shape, the weight is that of the same coordinate. Otherwise the codec
        has mixed the coordinates of the tensor, or of all tensors. The smallest weight then counts,
        because a row that is not delivered completely contains no single coordinate.

        Parameters
        ----------
        index : int
            Position of the group in the payload.
        weight : Tensors [S, *encoded shape]
            Delivered weight of the encoded tensors.
        restored : Tensors [S, *shape]
            Decoded tensors.

        Returns
        -------
        Tensors [S, *shape]
            Delivered weight of each coordinate.
        """
        out = {}
        for name, block in restored.items():
            if name in weight and weight[name].shape == block.shape:
                out[name] = weight[name]
                continue
            mixed = [weight[name]] if name in weight else list(weight.values())
            least = torch.stack([one.flatten(1).amin(1) for one in mixed]).amin(0)
            out[name] = c.unsqueeze_like(least, block).expand_as(block)
        return out

    def count_bits(self, group: c.Group) -> float:
        """Count the bits of one row of an encoded group on a digital uplink.

        By default a coordinate has 32 bits.
        """
        return 32.0 * group.num_coordinates

    def to_words(self, group: c.Group) -> c.Tensors:
        """Return the encoded coordinates of a group as words, name -> int64 [n, *shape].

        Words are from 0 to 2^word_bits - 1. It is called only if `word_bits` is given.
        """
        raise NotImplementedError


def get_shapes(group: c.Group) -> Shapes:
    """Return the shapes of the tensors of one row."""
    return {name: tuple(block.shape[1:]) for name, block in group.tensors.items()}


def flatten_known(group: c.Group) -> tuple[Tensor, Tensor | None]:
    """Return the tensors side by side [n, P], 0 where unknown, and the mask [n, P] or None."""
    mask = group.full_mask
    columns = flatten(group.masked_tensors)
    return columns, None if mask is None else flatten(mask).to(columns.dtype)


def get_trial_device(group: c.Group, cohort: c.Cohort) -> tuple[Tensor, Tensor]:
    """Return trial [n] and device [n] of the rows."""
    if group.row_index is None:
        return cohort.trial, cohort.device
    return cohort.trial[group.row_index], cohort.device[group.row_index]


def require_all_coordinates(groups: Iterable[c.Group], name: str, what: str) -> None:
    """Raise UserError if devices have only some of the coordinates.

    Parameters
    ----------
    groups : iterable of Group
        Groups of a payload.
    name : str
        Name of the codec.
    what : str
        What the codec does with all coordinates.
    """
    if any(group.mask is not None for group in groups):
        raise UserError(
            f"codec.name: '{name}' {what}, and the algorithm's devices have only some of them; use "
            "topk, or a quantiser"
        )


def find_late_problems(scenario: Any, name: str, coding: str) -> Iterator[Problem]:
    """Yield problems if updates are decoded in a later round than that of their encoding.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    name : str
        Name of the codec.
    coding : str
        What differs from round to round, as a noun.
    """
    devices, wrong = scenario.devices, f"does not go with codec: '{name}', whose "
    wrong += f"{coding} is that of the round in which it is sent;"
    if devices.protocol.goes_on:
        text = f"'{devices.protocol.name}' {wrong} use protocol: rounds"
        yield make_problem(text, "devices.protocol", "codec")
    if devices.late == "next":
        yield make_problem(f"'next' {wrong} use late: drop", "devices.late", "codec")


def find_vote_problems(scenario: Any, name: str) -> Iterator[Problem]:
    """Yield a problem if the transport gives the server a vote instead of a sum."""
    transport = scenario.transport.name
    if not registry.load_component("transport", transport).provides_sums:
        text = (
            f"'{transport}' gives the server a vote, and codec '{name}' needs the sum of the "
            "signals; use transport: over_the_air, or another codec"
        )
        yield make_problem(text, "transport", "codec")


def find_mean_problems(scenario: Any, name: str) -> Iterator[Problem]:
    """Yield problems if the server gets other than one mean, from which the next round follows."""
    method = scenario.algorithm
    if get_class(method).describe_payload(method.values).needs == "each":
        text = (
            f"'{name}' decodes the mean of the updates, and the algorithm needs each update; use "
            "another codec, or fedavg"
        )
        yield make_problem(text, "codec", "algorithm")
    if scenario.robust.is_active:
        text = (
            f"a rule needs several decoded inputs, and codec '{name}' decodes one mean, from which "
            "the next round follows; use another codec"
        )
        yield make_problem(text, "robust", "codec")
