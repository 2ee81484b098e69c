"""Largest magnitudes of a device's payload, with a memory of the rest (error feedback).

On a digital uplink k of n coordinates take

    k b + r + min(k ceil(log2 n), n)   or   k b + r + ceil(log2 C(n, k))                         (1)

bits, by `position_code`. By default b = 32 and r = 0. With `value_bits`, b bits are a sign and the
nearest of 2^(b-1) equidistant magnitudes between the smallest and the largest that are kept, and
these two take r = 64 bits. Error feedback also remembers the rounding error. Over the air the zeros
are sent too.

References
----------
Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory".
Aji, Heafield 2017, "Sparse Communication for Distributed Gradient Descent".
Cover 1973, "Enumerative Source Encoding", section III.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.base import Codec, EncodedGroup, flatten_known, get_shapes
from otafl.codecs.sparse import (
    FEEDBACK,
    ErrorFeedbackSettings,
    Feedback,
    PositionCode,
    add_memory,
    count_kept,
    count_position_bits,
    store_memory,
    subtract_delivered,
)
from otafl.core.contracts import Context, DeliveredMasks, Group, Payload, Tensors
from otafl.factorised.shrinkage import keep_largest
from otafl.models.base import flatten, unflatten

RANGE_BITS = 64
"""Bits of the smallest and the largest kept magnitude, as floats."""


class TopK(ErrorFeedbackSettings):
    """Largest magnitudes of each device's payload."""

    class Settings(Codec.Settings):
        name: Literal["topk"] = "topk"
        keep: float = Field(0.1, gt=0, le=1)
        """fraction of the coordinates that is kept"""
        scope: Literal["payload", "block"] = "payload"
        """scope of the choice: all coordinates of a payload group, or each tensor separately"""
        error_feedback: Feedback = True
        position_code: PositionCode = "plain"
        value_bits: int | None = Field(None, ge=2, le=16)
        """bits of a kept coordinate, a sign and a rounded magnitude; by default a float of 32 bits
        that is not rounded"""

        @property
        def assumes_increments(self) -> str:
            return FEEDBACK if self.error_feedback else ""

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        """Return the group with zeros except for the largest magnitudes of a = x + e."""
        x, mask = flatten_known(group)
        a = add_memory(x, mask, group, index, memory)
        parts = a.split(self._count_scopes(group), 1)
        kept = [keep_largest(one, count_kept(self.settings.keep, one.shape[1])) for one in parts]
        if self.settings.value_bits is not None:
            kept = [round_magnitudes(one, self.settings.value_bits) for one in kept]
        sent = torch.cat(kept, 1)
        memory = store_memory(a, mask, group, index, memory)
        return replace(group, tensors=unflatten(sent, get_shapes(group))), memory

    def on_ack(
        self, memory: Tensors, payload: Payload, delivered_masks: DeliveredMasks, context: Context
    ) -> Tensors:
        for index, (group, delivered) in enumerate(zip(payload, delivered_masks, strict=True)):
            if group.route == "uplink":
                memory = subtract_delivered(flatten(group.tensors), delivered, group, index, memory)
        return memory

    def _count_scopes(self, group: Group) -> list[int]:
        """Return the numbers of coordinates among which the largest are chosen."""
        if self.settings.scope == "payload":
            return [group.num_coordinates]
        return [block.flatten(1).shape[1] for block in group.tensors.values()]

    def count_bits(self, group: Group) -> float:
        return float(
            sum(
                self._count_scope_bits(num_coordinates)
                for num_coordinates in self._count_scopes(group)
            )
        )

    def _count_scope_bits(self, num_coordinates: int) -> int:
        """Count the bits of the largest of so many reals, eq. (1)."""
        kept = count_kept(self.settings.keep, num_coordinates)
        where = count_position_bits(num_coordinates, kept, self.settings.position_code)
        if self.settings.value_bits is None:
            return 32 * kept + where
        return self.settings.value_bits * kept + RANGE_BITS + where


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
