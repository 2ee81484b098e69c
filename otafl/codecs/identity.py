"""Send the payload as it is, at 32 bits a real on a digital uplink."""

from __future__ import annotations

from typing import Literal

from otafl.codecs.base import Codec, Coded
from otafl.core.contracts import Blocks, Context, Group


class Identity(Codec):
    once = False
    exact = True

    class Settings(Codec.Settings):
        name: Literal["identity"] = "identity"

    def encoded(self, group: Group, index: int, memory: Blocks, context: Context) -> Coded:
        return group, memory
