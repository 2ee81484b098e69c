"""Choose some of a row's numbers, count the bits that it takes to send them, and remember the rest.

Sent are 32 bits a number, and where the numbers are: a list of positions of ceil(log2 P) bits each,
or a map of P bits, whichever is shorter. What a device leaves out it may add to what it sends next
(error feedback; Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory", Algorithm 1): a = x +
e, top_k(a) is sent and e = a - top_k(a) kept. What the server does not receive is compressed to
nothing: it stays in e too, so that what was received and what is remembered is all there was to
send.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core.contracts import Group, Payload, Tensors

Positions = Annotated[
    bool,
    Field(
        description="count the bits that tell which numbers are sent; not needed where both ends "
        "draw the same subset from a shared seed"
    ),
]
Feedback = Annotated[
    bool, Field(description="what is left out is added to what the device sends next")
]

FEEDBACK = "adds what the server did not receive to the next update (error feedback)"
"""Why a codec that remembers assumes increments."""

LEFT_OUT = "has the server take 0 for what a device does not send"
"""Why a codec that leaves reals out does."""


class ErrorFeedbackSettings(Codec):
    """Let devices remember what the server has not received, if `error_feedback` says so."""

    @property
    def has_memory(self) -> bool:
        return bool(self.settings.error_feedback)

    def init(self, payload: Payload) -> Tensors:
        return build_memory(payload) if self.has_memory else {}


def count_kept(share: float, reals: int) -> int:
    """Return how many of so many numbers are kept, at least one."""
    return max(1, round(share * reals))


def draw_random_subset(draw: Tensor, count: int) -> Tensor:
    """Return 1 at the `count` largest of each row of independent uniform draws, else 0: [n, P]."""
    if count >= draw.shape[1]:
        return torch.ones_like(draw)
    place = draw.topk(count, dim=1, sorted=False).indices
    return torch.zeros_like(draw).scatter_(1, place, 1.0)


def count_subset_bits(reals: int, count: int, positions: bool = True) -> int:
    """Return the bits of `count` of so many numbers, and with `positions` of where they are."""
    where = min(count * (reals - 1).bit_length(), reals) if positions and count < reals else 0
    return 32 * count + where


def build_memory(payload: Payload) -> Tensors:
    """Return the devices' memory of zeros, "rest/<group>" [N, P] for each uplink group."""
    memory = {}
    for index, group in enumerate(payload):
        if group.route == "uplink":
            first = next(iter(group.tensors.values()))
            memory[_memory_name(index)] = first.new_zeros(1, 1).expand(
                len(first), group.num_coordinates
            )
    return memory


def add_memory(x: Tensor, mask: Tensor | None, group: Group, index: int, memory: Tensors) -> Tensor:
    """Return a = x + e [n, P], of coordinates that the rows know; x without a memory."""
    rest = memory.get(_memory_name(index))
    if rest is None:
        return x
    rest = rest if group.row_index is None else rest[group.row_index]
    return x + (rest if mask is None else rest * mask)


def store_memory(
    a: Tensor, mask: Tensor | None, group: Group, index: int, memory: Tensors
) -> Tensors:
    """Return the memory, if there is one, with e = a [n, P], all that there is to send; of
    coordinates that a row does not know, as it was."""
    name = _memory_name(index)
    if name not in memory:
        return memory
    rest = a
    if mask is not None:
        old = memory[name] if group.row_index is None else memory[name][group.row_index]
        rest = rest + old * (1.0 - mask)
    if group.row_index is not None:
        rest = memory[name].index_copy(0, group.row_index, rest)
    return memory | {name: rest}


def gather_memory(group: Group, index: int, memory: Tensors) -> Tensor:
    """Return what the memory has of the rows of a group, [n, P]."""
    rest = memory[_memory_name(index)]
    return rest if group.row_index is None else rest[group.row_index]


def subtract_delivered(
    sent: Tensor, delivered_mask: Tensor, group: Group, index: int, memory: Tensors
) -> Tensors:
    """Return the memory less what the server has received of the rows of a group: e = a - sent
    [n, P] where `heard` [N, 1] or [N, P]."""
    name = _memory_name(index)
    row_mask = delivered_mask if group.row_index is None else delivered_mask[group.row_index]
    rest = gather_memory(group, index, memory)
    rest = rest - torch.where(row_mask, sent, 0.0)
    if group.row_index is not None:
        rest = memory[name].index_copy(0, group.row_index, rest)
    return memory | {name: rest}


def _memory_name(index: int) -> str:
    return f"rest/{index}"
