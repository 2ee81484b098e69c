"""Random subset of a device's payload, drawn for each device and round.

FedAvg with this codec is TDPFed's reference "FedAvg (s.a.r.)", which sends a fraction of the
parameters in both directions: this codec on the uplink, and downlink random_subset on the downlink.
On a digital uplink a coordinate has 32 bits. Positions are sent as by codec topk, or not at all if
both ends draw the same subset. Over the air the zeros are sent too.

References
----------
Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated Learning",
    section VII-C.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from otafl.codecs.base import Codec, EncodedGroup, flatten_known, get_shapes, get_trial_device
from otafl.codecs.sparse import (
    LEFT_OUT,
    Positions,
    count_kept,
    count_subset_bits,
    draw_random_subset,
)
from otafl.core.contracts import Context, Group, Tensors
from otafl.core.rng import declare_family
from otafl.models.base import unflatten

CHOICE = declare_family("random_subset", __name__)


class RandomSubset(Codec):
    """Random subset of each device's coordinates."""

    class Settings(Codec.Settings):
        name: Literal["random_subset"] = "random_subset"
        keep: float = Field(0.5, gt=0, le=1)
        """fraction of the coordinates that is sent"""
        fill: Literal["zero", "keep"] = "zero"
        """treatment of coordinates that are not sent: zero, they count as 0 in the mean; keep, each
        coordinate's mean is over the devices that sent it, 0 if none did (so that with
        increments the server keeps its current value)"""
        positions: Positions = True

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
        return float(count_subset_bits(group.num_coordinates, count, self.settings.positions))
