"""Define a codec: it compresses a payload between the method and the transport."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.core.stateful import Stateful
from otafl.models.base import Shapes, flatten

VOTES = "takes a vote of signs, along which the server steps"
"""Why signs must be those of increments."""

EncodedGroup = tuple[c.Group, c.Tensors]
"""A group as it is sent, and the memory after it, should the server receive nothing of it."""


class Codec(Stateful, ABC):
    """Compress what devices send. Groups on the ideal route pass as they are.

    `decode` undoes what `encode` did to the shapes of the payload that it saw last; groups and
    shapes are the same in all rounds.

    Parameters
    ----------
    settings : the codec's, of its class `Settings`.
    hyper : its stackable fields, [S] each.
    streams : for precision, torch device and the number of trials.
    """

    has_single_row: ClassVar[bool] = True
    """Whether it codes one row a device: of several in a group the mean would go on air, which need
    not be one of the coded values."""

    is_lossless: ClassVar[bool] = False
    """What is decoded is the payload itself."""

    sends_sums: ClassVar[bool] = False
    """With default settings the server needs the plain sum of what devices send, which a vote does
    not give."""

    word_bits: int | None = None
    """Bits of a word, for a codec whose encoded reals are words that an uplink can send bit by bit;
    None where the settings make no words."""

    class Settings(settings.Settings):
        """Hold the section `codec` of a scenario."""

    def __init__(self, settings: Any, hyper: c.Hyper, streams: Streams) -> None:
        self.settings, self.hyper = settings, hyper

    @property
    def has_memory(self) -> bool:
        """Say whether devices keep what the server has not received, and send it with a later
        update (error feedback): then nothing that was coded is lost for good."""
        return False

    def init(self, payload: c.Payload) -> c.Tensors:
        """Return the devices' memory before the first round, name -> [N, ...], zero; the engine
        holds it between rounds."""
        return {}

    def encode(
        self, payload: c.Payload, memory: c.Tensors, cohort: c.Cohort, round: int, streams: Streams
    ) -> tuple[c.Payload, c.Tensors]:
        """Return what goes on the uplink.

        Parameters
        ----------
        payload : what the N rows of the cohort have to send.
        memory : of these rows, name -> [N, ...].
        cohort : N rows.
        round : from 0.
        streams : where random numbers come from.

        Returns
        -------
        The payload with its uplink groups encoded, and the memory after it, should the server
        receive nothing of it.

        Raises
        ------
        UserError : where a device has several rows in a group, for a codec that codes one.
        """
        context = c.Context(cohort, self.hyper, streams, round)
        coded = []
        for index, group in enumerate(payload):
            if group.route == "uplink":
                if self.has_single_row and has_repeated_devices(group):
                    raise UserError(
                        f"codec.name: '{self.settings.name}' codes one row a device, and the "
                        "algorithm sends several rows of a device in one group, of which the mean "
                        "would go on air; use codec identity"
                    )
                group, memory = self.encode_group(group, index, memory, context)
            coded.append(group)
        return tuple(coded), memory

    @abstractmethod
    def encode_group(
        self, group: c.Group, index: int, memory: c.Tensors, context: c.Context
    ) -> EncodedGroup:
        """Return an uplink group, number `index` of the payload, as it is sent; and the memory
        after it, should the server receive nothing of it."""

    def on_ack(
        self,
        memory: c.Tensors,
        payload: c.Payload,
        delivered_masks: c.DeliveredMasks,
        context: c.Context,
    ) -> c.Tensors:
        """Return the memory once it is known what the server has received.

        It is asked for every update once, of a codec that `has_memory`: after the update's slot, or
        as soon as it has missed all.

        Parameters
        ----------
        memory : of the N rows that sent, name -> [N, ...], as `encode` left it.
        payload : what they sent, as `encode` made it.
        delivered_masks : what of it was received.
        context : the rows, and the round of the slot.
        """
        return memory

    def decode(self, received: c.Received) -> c.Received:
        """Return what the server makes of what it has received: of every group, the mean's and
        each device's, what it has `decode_group`, and the weight that arrived of that."""

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
        """Return the blocks of group `index` as they were before `encode_group`; of the ideal
        route, as they are."""
        return tensors

    def decode_weight(self, index: int, weight: c.Tensors, restored: c.Tensors) -> c.Tensors:
        """Return the weight that arrived of the restored blocks of group `index`, real by real, of
        that of the encoded ones.

        Where a block kept its shape it is that of the same real. Else the codec has mixed the reals
        of the block, or those of all blocks, and the least of them counts: a row that did not
        arrive whole says nothing of a real.
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
        """Return what one row of an encoded group takes on a digital uplink: by default 32 bits a
        real."""
        return 32.0 * group.num_coordinates

    def to_words(self, group: c.Group) -> c.Tensors:
        """Return the encoded reals of a group as words, name -> [n, *shape] int64 from 0 to
        2^word_bits - 1. Asked where `word_bits` is given."""
        raise NotImplementedError

    def from_words(self, group: c.Group, words: c.Tensors) -> c.Tensors:
        """Return the blocks of a group with these words in the place of its own. What travels
        beside the words (the ends of a quantiser's range) is the group's."""
        raise NotImplementedError


def get_shapes(group: c.Group) -> Shapes:
    """Return the shapes of the blocks of one row."""
    return {name: tuple(block.shape[1:]) for name, block in group.tensors.items()}


def flatten_known(group: c.Group) -> tuple[Tensor, Tensor | None]:
    """Return the blocks side by side [n, P], 0 where unknown, and the mask [n, P]."""
    mask = group.full_mask
    columns = flatten(group.masked_tensors)
    return columns, None if mask is None else flatten(mask).to(columns.dtype)


def get_trial_device(group: c.Group, cohort: c.Cohort) -> tuple[Tensor, Tensor]:
    """Return trial [n] and device [n] of the rows."""
    if group.row_index is None:
        return cohort.trial, cohort.device
    return cohort.trial[group.row_index], cohort.device[group.row_index]


def has_repeated_devices(group: c.Group) -> bool:
    """Return whether a device has several rows in a group."""
    rows = group.row_index
    return rows is not None and len(torch.unique(rows)) < len(rows)
