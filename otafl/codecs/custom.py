"""Take a codec of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.codecs.base.Codec` or from a codec of this package, and what it returns has
the right shapes, or there is a UserError that says what has not.
"""

from __future__ import annotations

from typing import ClassVar

from otafl.codecs.base import Codec, Coded
from otafl.core.contracts import Blocks, Context, Group
from otafl.user_code.own import OwnClass, refuse, shapes


class Checked(Codec):
    """Checks what the user's codec, the next class in line, gives."""

    said: str

    def encoded(self, group: Group, index: int, memory: Blocks, context: Context) -> Coded:
        given = super().encoded(group, index, memory, context)  # type: ignore[safe-super]
        if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Group)):
            wanted = "(group, memory), the group an otafl.core.contracts.Group,"
            refuse("codec", self.said, "encoded", f"a {type(given).__name__}", wanted)
        coded, kept = given
        rows = len(next(iter(group.blocks.values())))
        for name, block in coded.blocks.items():
            if len(block) != rows:
                got = f"the block '{name}' of shape {list(block.shape)}"
                refuse("codec", self.said, "encoded", got, f"[{rows}, ...], a row a device,")
        if shapes(kept) != shapes(memory):
            wanted = f"{shapes(memory)}, as init made it,"
            refuse("codec", self.said, "encoded", f"the memory {shapes(kept)}", wanted)
        return coded, kept


class CustomCodec(OwnClass):
    """The section names a codec of the user's, which is checked in every round."""

    table: ClassVar = "codec"
    contract: ClassVar = Codec
    checks: ClassVar = Checked
