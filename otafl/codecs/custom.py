"""Take a codec of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.codecs.base.Codec` or from a codec of this package, and what it returns has
the right shapes, or there is a UserError that says what has not.
"""

from __future__ import annotations

from typing import Any, ClassVar

from otafl.codecs.base import Codec
from otafl.core.contracts import Group
from otafl.user_code.own import OwnClass
from otafl.user_code.returned import Call, blocks, kind_of, parts, rows


def encoded_group(call: Call, group: Any) -> Group:
    """Require a group with a row a device."""
    call.require(isinstance(group, Group), kind_of(group), "an otafl.core.contracts.Group")
    rows(call, "the block", group.blocks, [len(next(iter(call.given["group"].blocks.values())))])
    return group


class CustomCodec(OwnClass):
    """The section names a codec of the user's, which is checked in every round."""

    table: ClassVar = "codec"
    contract: ClassVar = Codec
    returns: ClassVar = {
        "encoded": parts(
            "(group, memory), the group an otafl.core.contracts.Group,",
            encoded_group,
            blocks("memory", "the memory's", "as init made it"),
        )
    }
