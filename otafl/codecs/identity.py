"""Payload as it is, with 32 bits per coordinate on a digital uplink."""

from __future__ import annotations

from typing import Literal

from otafl.codecs.base import Codec, EncodedGroup
from otafl.core.contracts import Context, Group, Tensors


class Identity(Codec):
    """No compression. Example: `studies/field/field.yaml`."""

    has_single_row = False
    is_lossless = True

    class Settings(Codec.Settings):
        name: Literal["identity"] = "identity"

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        return group, memory
