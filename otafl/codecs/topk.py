"""Largest magnitudes of a device's payload, with a memory of the rest (error feedback).

On a digital uplink a kept coordinate has 32 bits. Its position costs ceil(log2 n) bits in a list,
or a map has n bits for all, whichever is shorter. Over the air the zeros are sent too.

References
----------
Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory".
Aji, Heafield 2017, "Sparse Communication for Distributed Gradient Descent".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from otafl.codecs.base import Codec, EncodedGroup, flatten_known, get_shapes
from otafl.codecs.sparse import (
    FEEDBACK,
    ErrorFeedbackSettings,
    Feedback,
    add_memory,
    count_kept,
    count_subset_bits,
    store_memory,
    subtract_delivered,
)
from otafl.core.contracts import Context, DeliveredMasks, Group, Payload, Tensors
from otafl.factorised.shrinkage import keep_largest
from otafl.models.base import flatten, unflatten


class TopK(ErrorFeedbackSettings):
    """Largest magnitudes of each device's payload."""

    class Settings(Codec.Settings):
        name: Literal["topk"] = "topk"
        keep: float = Field(0.1, gt=0, le=1)
        """fraction of the coordinates that is kept"""
        scope: Literal["payload", "block"] = "payload"
        """scope of the choice: all coordinates of a payload group, or each tensor separately"""
        error_feedback: Feedback = True

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
        sent = torch.cat(
            [keep_largest(one, count_kept(self.settings.keep, one.shape[1])) for one in parts], 1
        )
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
        scopes = self._count_scopes(group)
        return float(
            sum(count_subset_bits(one, count_kept(self.settings.keep, one)) for one in scopes)
        )
