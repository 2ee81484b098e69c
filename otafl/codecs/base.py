"""The contract of a codec: what happens to a payload between the method and the transport."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import Blocks, Cohort, Context, Group, Hyper, Payload, Received
from otafl.core.rng import Streams

Coded = tuple[Group, Blocks]
"""A group as it is sent, and the memory after it."""


class Codec(ABC):
    """Compress what devices send. Groups on the ideal route pass as they are.

    `decode` undoes what `encode` did to the shapes of the payload that it saw last; groups and
    shapes are the same in all rounds.

    Parameters
    ----------
    settings : the codec's, of its class `Settings`.
    hyper : its stackable fields, [S] each.
    streams : for precision, torch device and the number of trials.
    """

    word_bits: int | None = None
    """Bits of a word, for a codec whose encoded reals are words that an uplink can send bit by bit;
    None where the settings make no words."""

    class Settings(settings.Settings):
        """Hold the section `codec` of a scenario."""

    def __init__(self, settings: Any, hyper: Hyper, streams: Streams) -> None:
        self.settings, self.hyper = settings, hyper

    def init(self, payload: Payload) -> Blocks:
        """Return the devices' memory before the first round, name -> [N, ...], zero; the engine
        holds it between rounds."""
        return {}

    def encode(
        self, payload: Payload, memory: Blocks, cohort: Cohort, round: int, streams: Streams
    ) -> tuple[Payload, Blocks]:
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
        The payload with its uplink groups encoded, and the memory after it.
        """
        context = Context(cohort, self.hyper, streams, round)
        coded = []
        for index, group in enumerate(payload):
            if group.route == "uplink":
                group, memory = self.encoded(group, index, memory, context)
            coded.append(group)
        return tuple(coded), memory

    @abstractmethod
    def encoded(self, group: Group, index: int, memory: Blocks, context: Context) -> Coded:
        """Return an uplink group, number `index` of the payload, as it is sent; and the memory
        after it."""

    def decode(self, received: Received) -> Received:
        """Return what the server makes of what it has received."""
        return received

    def bits(self, group: Group) -> float:
        """Return what one row of an encoded group takes on a digital uplink: by default 32 bits a
        real."""
        return 32.0 * group.reals

    def words(self, group: Group) -> Tensor:
        """Return the encoded reals of a group as words, the blocks side by side: [n, P] int64 from
        0 to 2^word_bits - 1. Asked where `word_bits` is given."""
        raise NotImplementedError

    def values(self, group: Group, words: Tensor) -> Blocks:
        """Return the blocks of a group with these words [n, P] in the place of its own. What
        travels beside the words (the ends of a quantiser's range) is the group's."""
        raise NotImplementedError
