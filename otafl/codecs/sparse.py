"""Common parts of sparsifying codecs: chosen coordinates, their bits, and the memory of the rest.

A sent coordinate has 32 bits, and its position costs either an entry of ceil(log2 P) bits in a
list, or a map of P bits for all, whichever is shorter. An enumerative code takes ceil(log2 C(P, k))
bits for the positions of k of P coordinates, the fewest if all subsets are equally likely (Cover
1973, "Enumerative Source Encoding", section III). A device may add what it leaves out to its next
update (error feedback; Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory", Algorithm 1):

    a = x + e,   send top_k(a),   keep e = a - top_k(a).

What the server does not receive stays in e too, so that the delivered part and the memory add up to
everything that was to be sent.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core.contracts import Context, DeliveredMasks, Group, Payload, Tensors

PositionCode = Annotated[
    Literal["plain", "enumerative"],
    Field(
        description="bits for the positions of k of P numbers: the shorter of a list and a map, "
        "min(k ceil(log2 P), P) (plain), or ceil(log2 C(P, k)), the fewest for equally likely "
        "subsets (enumerative)"
    ),
]
Feedback = Annotated[
    bool, Field(description="whether a device adds what it leaves out to its next update")
]

FEEDBACK = "adds what the server did not receive to the next update (error feedback)"
"""Reason why a codec with memory assumes increments."""

EXACT_SUBSETS = 1024
"""Largest P for which subsets are counted exactly; above, logarithms are exact to 1e-6 bits."""

LEFT_OUT = "has the server take 0 for what a device does not send"
"""Reason why a codec that leaves coordinates out assumes increments."""


class FeedbackCodec(Codec):
    """Codec whose devices remember what the server has not received, with `error_feedback`."""

    class Settings(Codec.Settings):
        error_feedback: Feedback = True

        @property
        def assumes_increments(self) -> str:
            return FEEDBACK if self.error_feedback else ""

    @property
    def has_memory(self) -> bool:
        return bool(self.settings.error_feedback)

    def init(self, payload: Payload) -> Tensors:
        """Return the devices' memory of zeros, "rest/<group>" [N, P] for each uplink group."""
        memory = {}
        for index, group in enumerate(payload if self.has_memory else ()):
            if group.route == "uplink":
                first = next(iter(group.tensors.values()))
                zero = first.new_zeros(1, 1)
                memory[_name_memory(index)] = zero.expand(len(first), group.num_coordinates)
        return memory

    def add_memory(
        self, x: Tensor, mask: Tensor | None, group: Group, index: int, memory: Tensors
    ) -> tuple[Tensor, Tensors]:
        """Compute a = x + e, everything that is to be sent.

        Parameters
        ----------
        x : Tensor, float [n, P]
            Coordinates of the rows.
        mask : Tensor, float [n, P], or None
            1 where a row has a coordinate; all if None.
        group : Group
            The group.
        index : int
            Position of the group in the payload.
        memory : Tensors [N, P]
            Memory of the devices; empty without error feedback.

        Returns
        -------
        a : Tensor, float [n, P]
            Coordinates with the memory.
        memory : Tensors [N, P]
            Memory with e = a. Coordinates that a row does not have keep their memory.
        """
        if _name_memory(index) not in memory:
            return x, memory
        old = gather_memory(group, index, memory)
        if mask is None:
            a = rest = x + old
        else:
            a = x + old * mask
            rest = a + old * (1.0 - mask)
        return a, _replace_memory(rest, group, index, memory)

    def on_ack(
        self, memory: Tensors, payload: Payload, delivered_masks: DeliveredMasks, context: Context
    ) -> Tensors:
        """Subtract what the server has received from the memory, so that e = a - sent."""
        for index, (group, delivered) in enumerate(zip(payload, delivered_masks, strict=True)):
            if group.route == "uplink":
                row_mask = delivered if group.row_index is None else delivered[group.row_index]
                rest = gather_memory(group, index, memory)
                rest = rest - self.find_received(group, index, row_mask, rest, context)
                memory = _replace_memory(rest, group, index, memory)
        return memory

    @abstractmethod
    def find_received(
        self, group: Group, index: int, delivered: Tensor, a: Tensor, context: Context
    ) -> Tensor:
        """Find what the server has received of a group's coordinates.

        Parameters
        ----------
        group : Group
            The encoded group.
        index : int
            Position of the group in the payload.
        delivered : Tensor, bool [n, 1], or for each number of the encoded group
            Delivered numbers.
        a : Tensor, float [n, P]
            Everything that was to be sent.
        context : Context
            The devices, and the round.

        Returns
        -------
        Tensor, float [n, P]
            Received coordinates, 0 for others.
        """


def count_kept(share: float, num_coordinates: int) -> int:
    """Count the kept numbers out of `reals`, at least one."""
    return max(1, round(share * num_coordinates))


def draw_random_subset(draw: Tensor, count: int) -> Tensor:
    """Return 1 at the `count` largest of each row of uniform draws [n, P], else 0: [n, P]."""
    if count >= draw.shape[1]:
        return torch.ones_like(draw)
    place = draw.topk(count, dim=1, sorted=False).indices
    return torch.zeros_like(draw).scatter_(1, place, 1.0)


def count_subset_bits(num_coordinates: int, count: int) -> int:
    """Count the bits of `count` out of so many coordinates, and of their positions."""
    return 32 * count + count_position_bits(num_coordinates, count)


def count_position_bits(num_coordinates: int, count: int, code: PositionCode = "plain") -> int:
    """Count the bits that tell which numbers are sent.

    Parameters
    ----------
    num_coordinates : int
        Numbers P to choose from.
    count : int
        Numbers k that are sent.
    code : {"plain", "enumerative"}
        The shorter of a list and a map, or the position in a list of all subsets.

    Returns
    -------
    int
        min(k ceil(log2 P), P), or ceil(log2 C(P, k)); 0 if all numbers are sent.
    """
    if count >= num_coordinates:
        return 0
    if code == "plain":
        return min(count * (num_coordinates - 1).bit_length(), num_coordinates)
    if num_coordinates <= EXACT_SUBSETS:
        return (math.comb(num_coordinates, count) - 1).bit_length()
    log_subsets = (
        math.lgamma(num_coordinates + 1)
        - math.lgamma(count + 1)
        - math.lgamma(num_coordinates - count + 1)
    )
    return math.ceil(log_subsets / math.log(2.0) - 1e-6)


def gather_memory(group: Group, index: int, memory: Tensors) -> Tensor:
    """Return the memory of the rows of a group, [n, P]."""
    rest = memory[_name_memory(index)]
    return rest if group.row_index is None else rest[group.row_index]


def _replace_memory(rest: Tensor, group: Group, index: int, memory: Tensors) -> Tensors:
    """Return the memory [N, P] with that of the rows of a group, [n, P]."""
    name = _name_memory(index)
    if group.row_index is not None:
        rest = memory[name].index_copy(0, group.row_index, rest)
    return memory | {name: rest}


def _name_memory(index: int) -> str:
    return f"rest/{index}"
